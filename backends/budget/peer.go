package budget

import (
	"sync"
	"time"
)

// Over says which limit is exceeded.
type Over uint8

const (
	// OverNothing is that none is.
	OverNothing Over = iota
	// OverWrites is the limit of the peer's writes.
	OverWrites
	// OverBytes is that of their bytes.
	OverBytes
	// OverCommon is the limit of all peers together.
	OverCommon
)

// String is a label of metrics.
func (o Over) String() string {
	switch o {
	case OverWrites:
		return "writes"
	case OverBytes:
		return "bytes"
	case OverCommon:
		return "common"
	}
	return "nothing"
}

// Sentence says for people what is exceeded.
func (o Over) Sentence() string {
	switch o {
	case OverWrites:
		return "the peer has more written than its limit of writes allows"
	case OverBytes:
		return "the peer has more written than its limit of bytes allows"
	case OverCommon:
		return "all agents together have more written than their common limit of bytes allows"
	}
	return "nothing is exceeded"
}

// Peer is what one peer may have us write. Its methods may be called concurrently.
type Peer struct {
	name   string
	common *Common // nil: there is none

	mu            sync.Mutex // guards what follows
	writes, bytes bucket
}

// NewPeer returns one whose bursts are full. Common is nil where there is none; names are
// unique among its peers.
func NewPeer(name string, l Limits, common *Common, now time.Time) *Peer {
	return &Peer{name: name, common: common, writes: newBucket(l.Writes, now), bytes: newBucket(l.Bytes, now)}
}

// Limits are those that it has now.
func (p *Peer) Limits() Limits {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Limits{Writes: p.writes.limit, Bytes: p.bytes.limit}
}

// Limit gives it other limits. What was used stays used.
func (p *Peer) Limit(l Limits, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	p.writes.become(l.Writes)
	p.bytes.become(l.Bytes)
}

// Levels is what is left.
func (p *Peer) Levels(now time.Time) Levels {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	return Levels{Writes: int64(p.writes.level()), Bytes: int64(p.bytes.level()), At: now}
}

// Full reports whether nothing is missing, so that nothing needs to be remembered.
func (p *Peer) Full(now time.Time) bool {
	have, l := p.Levels(now), p.Limits()
	return have.Writes >= l.Writes.Burst && have.Bytes >= l.Bytes.Burst
}

// ReportDue reports whether much less is left than what was reported last: what comes back by
// itself need not be reported.
func (p *Peer) ReportDue(reported Levels, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	return p.writes.reportDue(reported.Writes, reported.At, now) || p.bytes.reportDue(reported.Bytes, reported.At, now)
}

// Lower makes what was left at a time what is left, where that is less: another process, or
// this one before it began, may have used some. Levels without a time say nothing.
func (p *Peer) Lower(l Levels, now time.Time) {
	if l.At.IsZero() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advance(now)
	p.writes.lower(l.Writes, l.At, now)
	p.bytes.lower(l.Bytes, l.At, now)
}

// Acquire lets the peer have us begin a write of about so many bytes, or says which limit
// is exceeded and how long to wait before it asks again. Charge says then what was written.
func (p *Peer) Acquire(now time.Time, bytes int) (over Over, wait time.Duration) {
	p.mu.Lock()
	p.advance(now)
	switch {
	case !p.writes.open():
		over, wait = OverWrites, max(p.writes.wait(), p.bytes.wait())
	case !p.bytes.open():
		over, wait = OverBytes, p.bytes.wait()
	}
	p.mu.Unlock()
	if over != OverNothing {
		p.Leave() // it does not wait for a turn that it could not use
		return over, wait
	}
	if p.common != nil {
		if granted, wait := p.common.acquire(p.name, now, float64(bytes)); !granted {
			return OverCommon, wait
		}
	}
	p.use(1, float64(bytes))
	return OverNothing, 0
}

// AcquireSpare is Acquire for what goes after all else, of this peer and of all: it is granted only
// while nothing has to wait, and who is not granted it does not wait for a turn.
func (p *Peer) AcquireSpare(now time.Time, bytes int) Over {
	p.mu.Lock()
	p.advance(now)
	over := OverNothing
	switch {
	case !p.writes.open():
		over = OverWrites
	case !p.bytes.open():
		over = OverBytes
	}
	p.mu.Unlock()
	switch {
	case over != OverNothing:
		return over
	case p.common != nil && !p.common.acquireSpare(now, float64(bytes)):
		return OverCommon
	}
	p.use(1, float64(bytes))
	return OverNothing
}

// Charge says what became of what Acquire granted for so many bytes.
func (p *Peer) Charge(now time.Time, granted, writes, bytes int) {
	more := float64(bytes - granted)
	p.mu.Lock()
	p.advance(now)
	p.mu.Unlock()
	p.use(float64(writes-1), more)
	if p.common != nil {
		p.common.correct(p.name, now, more)
	}
}

// Leave says that the peer has nothing to write any more.
func (p *Peer) Leave() {
	if p.common != nil {
		p.common.leave(p.name)
	}
}

func (p *Peer) use(writes, bytes float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes.use(writes)
	p.bytes.use(bytes)
}

func (p *Peer) advance(now time.Time) {
	p.writes.advance(now)
	p.bytes.advance(now)
}
