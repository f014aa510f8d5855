package budget

import (
	"sync"
	"time"
)

const (
	// firstCredit is what a peer may use beyond its turn when peers begin to wait: it had
	// no chance yet to use less than an equal share.
	firstCredit = 64 * kib
	// maxCredit is the most of its share that a peer which used less may use at once: as
	// much as the largest object.
	maxCredit = mib
	// overdraft is how many seconds of the rate may be used in advance, by those that
	// used less than an equal share.
	overdraft = 2
	// lapseTime is how late a peer may come back for its turn before the others go on, and
	// for how long it counts among those that have something to write.
	lapseTime = 2 * time.Second
)

// Common is the budget of bytes of all peers of a hub together. Its methods may be called
// concurrently.
//
// While there is enough no one waits. When there is not, it is counted what each peer
// uses from then on, and what an equal share is. Anyone who used least goes next. One that
// used less than a share goes at once with what is left of it, so that the others take
// turns with the rest.
type Common struct {
	mu     sync.Mutex // guards what follows
	bucket bucket
	// usages are the peers that used something since there was too little; empty while
	// there is enough.
	usages map[string]*usage
	// fairShare is what each might have used since then: of those that wait, and so use all
	// that they can, none used less. shared is when it was last counted.
	fairShare float64
	shared    time.Time
}

// usage is how a peer stands to the others.
type usage struct {
	used float64
	// wants is for how much it waits; zero while it does not. since and due are when it
	// began to, and when it will ask again.
	wants      float64
	since, due time.Time
	asked      time.Time
}

// NewCommon returns one that is full. A zero limit is none.
func NewCommon(l Limit, now time.Time) *Common {
	return &Common{bucket: newBucket(l, now), usages: map[string]*usage{}}
}

// Level is what is left.
func (c *Common) Level(now time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bucket.advance(now)
	return int64(c.bucket.level())
}

// ReportDue reports whether much less is left than level, which was reported last, at a time:
// what comes back by itself need not be reported.
func (c *Common) ReportDue(level int64, at, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bucket.advance(now)
	return c.bucket.reportDue(level, at, now)
}

// Lower makes level, which was left at a time, what is left, where that is less. One
// without a time says nothing.
func (c *Common) Lower(level int64, at, now time.Time) {
	if at.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bucket.advance(now)
	c.bucket.lower(level, at, now)
}

// acquire lets a peer use n bytes, or says how long to wait before it asks again.
func (c *Common) acquire(peer string, now time.Time, n float64) (granted bool, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bucket.limit.none() {
		return true, 0
	}
	c.bucket.advance(now)
	c.updateUsages(now)
	if c.bucket.open() && len(c.usages) == 0 {
		c.bucket.use(n)
		return true, 0
	}
	t := c.usages[peer]
	if t == nil {
		t = &usage{used: c.fairShare - firstCredit}
		c.usages[peer] = t
	}
	t.asked, t.used = now, max(t.used, c.fairShare-maxCredit)
	earlier := c.earlier(t)
	owed := c.fairShare-t.used >= n && c.bucket.level() > -overdraft*float64(c.bucket.limit.Rate)
	if !owed && (earlier > 0 || !c.bucket.open()) {
		if t.wants == 0 {
			t.since = now
		}
		t.wants = n
		wait = c.bucket.wait() + time.Duration(earlier/float64(max(c.bucket.limit.Rate, 1))*float64(time.Second))
		wait = min(max(wait, time.Millisecond), lapseTime)
		t.due = now.Add(wait)
		return false, wait
	}
	t.wants = 0
	t.used += n
	c.bucket.use(n)
	return true, 0
}

// acquireSpare lets someone use n bytes while there is enough for all, and no one waits.
func (c *Common) acquireSpare(now time.Time, n float64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bucket.limit.none() {
		return true
	}
	c.bucket.advance(now)
	c.updateUsages(now)
	if len(c.usages) > 0 || !c.bucket.open() {
		return false
	}
	c.bucket.use(n)
	return true
}

// earlier is what those want that go before t.
func (c *Common) earlier(t *usage) float64 {
	sum := 0.0
	for _, other := range c.usages {
		if other == t || other.wants == 0 {
			continue
		}
		if other.used < t.used || other.used == t.used && (t.wants == 0 || other.since.Before(t.since)) {
			sum += other.wants
		}
	}
	return sum
}

// updateUsages counts the share of now, takes those out of the line that did not come back
// for their turn, and ends the turns when there is enough again.
func (c *Common) updateUsages(now time.Time) {
	active, least, waiting := 0, 0.0, false
	for _, t := range c.usages {
		if t.wants > 0 && now.Sub(t.due) > lapseTime {
			t.wants = 0
		}
		if t.wants > 0 && (!waiting || t.used < least) {
			least, waiting = t.used, true
		}
		if t.wants > 0 || now.Sub(t.asked) < lapseTime {
			active++
		}
	}
	if passed := now.Sub(c.shared).Seconds(); passed > 0 && active > 0 {
		c.fairShare += passed * float64(c.bucket.limit.Rate) / float64(active)
	}
	c.shared = now
	switch {
	case waiting:
		c.fairShare = max(c.fairShare, least)
	case len(c.usages) > 0 && c.bucket.level() >= c.bucket.room():
		clear(c.usages)
		c.fairShare = 0
	}
}

// correct corrects what a peer was let use: n more, or less when it is below zero.
func (c *Common) correct(peer string, now time.Time, n float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bucket.advance(now)
	c.bucket.use(n)
	if t := c.usages[peer]; t != nil {
		t.used += n
	}
}

// leave takes a peer out of the line.
func (c *Common) leave(peer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.usages[peer]; t != nil {
		t.wants = 0
	}
}
