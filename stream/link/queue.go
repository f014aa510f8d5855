package link

import (
	"container/heap"
	"slices"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// queue is a FIFO of keys; anyone who pushes keeps it free of duplicates.
type queue struct {
	keys []stream.EntryKey
	head int
}

// maxSpare is how much room an empty queue, or an empty map of what is under way,
// keeps after a burst.
const maxSpare = 16

func (q *queue) push(key stream.EntryKey) { q.keys = append(q.keys, key) }

func (q *queue) len() int { return len(q.keys) - q.head }

// filter drops the keys that keep does not want.
func (q *queue) filter(keep func(stream.EntryKey) bool) {
	q.keys = slices.DeleteFunc(q.keys[q.head:], func(key stream.EntryKey) bool { return !keep(key) })
	q.head = 0
}

func (q *queue) pop() (stream.EntryKey, bool) {
	if q.head == len(q.keys) {
		q.keys, q.head = q.keys[:0], 0
		if cap(q.keys) > maxSpare {
			q.keys = nil // a burst is over
		}
		return stream.EntryKey{}, false
	}
	key := q.keys[q.head]
	q.head++
	if q.head > 1024 && q.head > len(q.keys)/2 {
		q.keys = append(q.keys[:0], q.keys[q.head:]...)
		q.head = 0
	}
	return key, true
}

// agenda is which entries of a source are to be handled, and when.
type agenda struct {
	entries table[*entry]
	dirty   queue
	parked  schedule
	// calming has each time at which something that was changed back may be forgotten.
	calming schedule
}

// pop returns the oldest dirty entry, out of the queue but still marked as
// queued; nil when there is none.
func (a *agenda) pop() (stream.EntryKey, *entry) {
	for {
		key, ok := a.dirty.pop()
		if !ok {
			return stream.EntryKey{}, nil
		}
		if e := a.entries.get(key); e != nil && e.queued {
			// load is asked even for an entry that is satisfied by now: it may be newer.
			return key, e
		}
	}
}

// Back-off of parked entries: an API server that does not answer is tried again
// soon, content that is refused seldom, since only a change on the sink's side
// can make it acceptable. So is what the sink took without holding anything of it,
// since it says when it does: the hub has no Application to show a status on, perhaps
// for as long as someone takes to accept that it is gone.
const (
	minRetryUnavailable = 500 * time.Millisecond
	maxRetryUnavailable = 15 * time.Second
	minRetryRefused     = 5 * time.Second
	maxRetryRefused     = 5 * time.Minute
)

// A sink whose digest differs in the middle of a connection is asked what it holds
// repairFree times at once, and after that once in repairPause, which is well within
// the minute that two honest ends have to agree (I8). After repairWindow without it
// all is forgotten.
const (
	repairFree   = 3
	repairPause  = 40 * time.Second
	repairWindow = 5 * time.Minute
)

// listPause is the least time between two lists of what a sink holds.
const listPause = time.Second

func (a *agenda) park(now time.Time, key stream.EntryKey, e *entry) {
	shortest, longest := minRetryUnavailable, maxRetryUnavailable
	p := e.ensurePending()
	if p.refusal != nil && !p.refusal.Kind.Passing() || p.refusal == nil && p.notStored {
		shortest, longest = minRetryRefused, maxRetryRefused
	}
	a.parkFor(now, key, e, min(shortest<<min(p.attempts, 16), longest))
	p.attempts++
}

// parkFor makes e due after delay.
func (a *agenda) parkFor(now time.Time, key stream.EntryKey, e *entry, delay time.Duration) {
	// Up to a quarter more, by key, so that a crowd of parked entries disperses.
	delay += delay * time.Duration(e.bucket) / (4 * stream.BucketCount)
	a.parkUntil(now.Add(delay), key, e)
}

// parkUntil makes e due at a time.
func (a *agenda) parkUntil(at time.Time, key stream.EntryKey, e *entry) {
	e.ensurePending().retry = at
	if len(a.parked) >= a.crowd() {
		a.parked.filter(func(d due) bool {
			e := a.entries.get(d.key)
			return e != nil && e.parked().Equal(d.at)
		})
	}
	heap.Push(&a.parked, due{at: at, key: key})
}

// crowd is how many keys a queue or a schedule may have. More than two for each entry are
// mostly of a peer that says one thing and then the other: what is overtaken goes then.
func (a *agenda) crowd() int { return 2*a.entries.len() + maxSpare }

// enqueue puts an entry that is marked as queued into the queue.
func (a *agenda) enqueue(key stream.EntryKey) {
	if a.dirty.len() >= a.crowd() {
		there := map[stream.EntryKey]bool{key: true} // it comes last
		a.dirty.filter(func(key stream.EntryKey) bool {
			e := a.entries.get(key)
			stays := e != nil && e.queued && !there[key]
			there[key] = true
			return stays
		})
	}
	a.dirty.push(key)
}

// schedule is a heap of parked entries; one that was unparked otherwise stays in
// it until its time has come, or until there are too many.
type schedule []due

type due struct {
	at  time.Time
	key stream.EntryKey
}

func (s schedule) next() time.Time {
	if len(s) == 0 {
		return time.Time{}
	}
	return s[0].at
}

// filter drops what stands does not hold of, and all but one of each key.
func (s *schedule) filter(stands func(due) bool) {
	there := map[stream.EntryKey]bool{}
	*s = slices.DeleteFunc(*s, func(d due) bool {
		if there[d.key] || !stands(d) {
			return true
		}
		there[d.key] = true
		return false
	})
	heap.Init(s)
}

// Len, Less, Swap, Push and Pop are heap.Interface.

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].at.Before(s[j].at) }
func (s schedule) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }

// Push is for package heap.
func (s *schedule) Push(x any) {
	d, _ := x.(due)
	*s = append(*s, d)
}

// Pop is for package heap.
func (s *schedule) Pop() any {
	last := len(*s) - 1
	d := (*s)[last]
	*s = (*s)[:last]
	return d
}
