package budget

import "time"

// refillTime is how long an empty burst takes to be full again, when nothing is used.
const refillTime = time.Hour

// bucket is what is left of a limit. What is used is taken from flow first, then from
// store. Not more than what the rate brings ever comes in, so that over any time not more
// than the burst plus the rate times the time goes out.
type bucket struct {
	limit Limit
	// flow is what the rate brought and no one used, of a second at most; less than zero
	// for a debt, which the rate pays first.
	flow float64
	// store is what is left of the burst beyond flow. It fills from what flow has no
	// room for, within refillTime.
	store float64
	at    time.Time // the latest time that it was advanced to
}

func newBucket(l Limit, now time.Time) bucket {
	b := bucket{limit: l, at: now}
	b.flow, b.store = b.room(), b.depth()
	return b
}

// room is the most that flow may be.
func (b *bucket) room() float64 { return float64(min(b.limit.Rate, b.limit.Burst)) }

// depth is the most that store may be.
func (b *bucket) depth() float64 { return float64(b.limit.Burst) - b.room() }

// advance lets time pass.
func (b *bucket) advance(now time.Time) {
	passed := now.Sub(b.at).Seconds()
	if passed <= 0 {
		return
	}
	b.at = now
	b.flow += passed * float64(b.limit.Rate)
	if over := b.flow - b.room(); over > 0 {
		b.flow = b.room()
		b.store = min(b.depth(), b.store+min(over, passed*b.depth()/refillTime.Seconds()))
	}
}

// level is what is left.
func (b *bucket) level() float64 { return b.flow + b.store }

// open reports whether something is left, however little: the last one may use more.
func (b *bucket) open() bool { return b.limit.none() || b.level() > 0 }

// wait is how long it takes until something is left, when nothing is used meanwhile.
func (b *bucket) wait() time.Duration {
	if b.open() {
		return 0
	}
	// A little more than nothing, and not just before that.
	return time.Duration((1-b.level())/float64(max(b.limit.Rate, 1))*float64(time.Second)) + time.Millisecond
}

// use takes n, or gives it back when it is less than nothing.
func (b *bucket) use(n float64) {
	if b.limit.none() {
		return
	}
	if b.flow -= n; b.flow > b.room() {
		b.store = min(b.depth(), b.store+b.flow-b.room())
		b.flow = b.room()
	}
	if b.flow < 0 && b.store > 0 {
		paid := min(-b.flow, b.store)
		b.flow, b.store = b.flow+paid, b.store-paid
	}
}

// become takes another limit. What a burst has grown by is there at once: anyone who raises
// it waits for something.
func (b *bucket) become(l Limit) {
	more := float64(l.Burst - b.limit.Burst)
	if b.limit.none() {
		more = 0
		b.flow, b.store = float64(l.Burst), 0
	}
	level := b.level()
	b.limit = l
	b.set(level + max(more, 0))
}

// set makes level what is left, as far as there is room.
func (b *bucket) set(level float64) {
	level = max(min(level, float64(b.limit.Burst)), -float64(b.limit.Burst))
	b.flow = min(level, b.room())
	b.store = level - b.flow
}

// lower is restore where that leaves less.
func (b *bucket) lower(level int64, at, now time.Time) {
	other := *b
	if other.restore(level, at, now); other.level() < b.level() {
		*b = other
	}
}

// reportSeconds is how much of its rate may be used before what is left is worth reporting again.
const reportSeconds = 2

// reportDue reports whether much less is left than what would follow now from the level that was
// last reported, at that time. The zero time means that none was reported: then a full bucket
// would follow.
func (b *bucket) reportDue(level int64, at, now time.Time) bool {
	reported := newBucket(b.limit, now)
	if !at.IsZero() {
		reported = *b
		reported.restore(level, at, now)
	}
	return reported.level()-b.level() > float64(reportSeconds*b.limit.Rate)
}

// restore makes level what was left at a time. One that is yet to come is of another
// clock, and lets no time pass.
func (b *bucket) restore(level int64, at, now time.Time) {
	b.set(float64(level))
	b.at = now
	if at.Before(now) {
		b.at = at
	}
	b.advance(now)
}
