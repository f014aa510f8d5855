package quota

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/identity"
)

// What a peer may have us compute beside others. A goroutine that is ready to run waits for
// each one before it, ten milliseconds and more where it computes for long; a few peers with
// many of these at once would hold up all that others do. So anyone who has used its allowance
// takes turns at half of the processors, and everything else finds the others free.
const (
	// allowedAtOnce is how long a peer may compute without taking turns, and allowedOf
	// which part of a processor it has in the long run.
	allowedAtOnce = 100 * time.Millisecond
	allowedOf     = 10
	// long is from how long on a computation is followed by as much time in which no one has its
	// slot, so that other processes of the machine compute, and maxPause the most of that.
	long     = 2 * time.Millisecond
	maxPause = 100 * time.Millisecond
	// maxUsed is the most that is counted against a peer: it is forgotten within nine seconds.
	maxUsed = time.Second
)

// processors are those of the process, as far as peers have it compute.
type processors struct {
	slots            *room
	working, waiting prometheus.Gauge

	mu    sync.Mutex // guards what follows
	peers map[identity.AgentName]used
	swept time.Time
}

// used is how much a peer had of the processors, as of a time.
type used struct {
	time time.Duration
	at   time.Time
}

// now is what is still counted against the peer.
func (u used) now(now time.Time) time.Duration {
	return max(u.time-now.Sub(u.at)/allowedOf, 0)
}

// newProcessors returns those of a process that has so many.
func newProcessors(n int) *processors {
	all := max(int64(n/2), 1)
	return &processors{
		slots: newRoom(all, func(int64) int64 { return all }),
		peers: map[identity.AgentName]used{},
		working: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_computing",
			Help: "Turns of peers at the processors that are under way: unpacking, decoding and comparing for those that have used more than their allowance.",
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_computing_waiting", Help: "Goroutines that wait for the turn of their peer at the processors.",
		}),
	}
}

// Computation is one on account of a peer. The zero Computation is none.
type Computation struct {
	of    identity.AgentName
	in    *processors
	began time.Time
	slot  bool
}

// Compute begins to compute on account of a peer, until End is called, once. It returns at
// once for a peer that computes little: a tenth of a processor, and 100 ms at once. Others
// take turns as in Acquire, as many at a time as half of the processors are, at least one.
// Between the two the caller waits for nothing, least of all for another slot.
func (q *Quota) Compute(of identity.AgentName) Computation {
	if of == (identity.AgentName{}) {
		return Computation{} // before it is known who it is
	}
	p := q.processors
	c := Computation{of: of, in: p, began: time.Now()}
	if p.used(of, c.began) < allowedAtOnce {
		return c
	}
	if p.wait(of) {
		c.began = time.Now()
	}
	p.working.Inc()
	c.slot = true
	return c
}

// wait waits for a slot and takes it; it reports whether that took time.
func (p *processors) wait(of identity.AgentName) bool {
	w := p.slots.join(of, 1)
	if w.isGranted() {
		return false
	}
	p.waiting.Inc()
	<-w.granted
	p.waiting.Dec()
	return true
}

// Spend counts what is computed on account of a peer without a Computation, about so long.
// It returns when the peer is granted a slot, as Compute does: who asks for much of that waits, and
// with it the peer, which the flow control of HTTP/2 slows down.
func (q *Quota) Spend(of identity.AgentName, about time.Duration) {
	p, now := q.processors, time.Now()
	if p.used(of, now) >= allowedAtOnce {
		p.wait(of)
		p.slots.release(of, 1)
		now = time.Now()
	}
	p.use(of, now.Add(-about), now)
}

// End ends it.
func (c Computation) End() {
	p := c.in
	if p == nil {
		return
	}
	now := time.Now()
	p.use(c.of, c.began, now)
	if !c.slot {
		return
	}
	p.working.Dec()
	took := min(now.Sub(c.began), maxPause)
	if took < long {
		p.slots.release(c.of, 1)
		return
	}
	time.AfterFunc(took, func() { p.slots.release(c.of, 1) })
}

func (p *processors) used(of identity.AgentName, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peers[of].now(now)
}

// use counts what a peer had, and forgets those against which nothing is counted any more:
// who is remembered has computed within the last ten seconds.
func (p *processors) use(of identity.AgentName, from, to time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.peers[of] = used{min(p.peers[of].now(to)+to.Sub(from), maxUsed), to}
	if to.Sub(p.swept) < time.Second {
		return
	}
	p.swept = to
	for of, u := range p.peers {
		if u.now(to) == 0 {
			delete(p.peers, of)
		}
	}
}
