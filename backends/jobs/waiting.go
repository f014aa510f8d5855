package jobs

import (
	"cmp"
	"slices"
	"time"

	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/stream"
)

// Due is when something may go that waits for time alone; zero for nothing. While no job may
// begin nothing goes, whatever the peer's budget has by then.
func (q *Queue) Due() time.Time {
	if q.Free() && !q.budgetCheck.IsZero() && (q.due.IsZero() || q.budgetCheck.Before(q.due)) {
		return q.budgetCheck
	}
	return q.due
}

// postpone lets a job wait until its object may be written again.
func (q *Queue) postpone(key stream.ResourceKey, until time.Time) {
	if q.postponed == nil {
		q.postponed = map[stream.ResourceKey]time.Time{}
	}
	q.line.Remove(key)
	q.postponed[key] = until
	if q.due.IsZero() || until.Before(q.due) {
		q.due = until
	}
}

// postponedUntil returns the jobs that have waited for their objects long enough.
func (q *Queue) postponedUntil(now time.Time) []stream.ResourceKey {
	if q.due.IsZero() || q.due.After(now) {
		return nil
	}
	var keys []stream.ResourceKey
	q.due = time.Time{}
	for key, until := range q.postponed {
		switch {
		case !until.After(now):
			keys = append(keys, key)
		case q.due.IsZero() || until.Before(q.due):
			q.due = until
		}
	}
	slices.SortFunc(keys, func(a, b stream.ResourceKey) int { return cmp.Compare(a.String(), b.String()) })
	return keys
}

// exceed waits until a budget has something again.
func (q *Queue) exceed(over budget.Over, now time.Time, wait time.Duration) {
	q.exceeded, q.at = over, now
	q.cfg.Waited(over)
	if q.budgetCheck.IsZero() {
		var line budget.Line[stream.ResourceKey]
		for {
			key, _, ok := q.line.Next()
			if !ok {
				break
			}
			q.line.Remove(key)
			line.Add(key, q.class(key, q.jobs[key]))
		}
		q.line = line
	}
	q.budgetCheck = now.Add(wait)
	q.returnExcess()
}

// returnExcess returns to the peer the events that wait beyond maxDelayed, what goes last first: it
// sends them again, with what is newest then.
func (q *Queue) returnExcess() {
	events, bytes := 0, 0
	for _, j := range q.jobs {
		if !j.queued {
			continue
		}
		events += len(j.waits.Events)
		for _, e := range j.waits.Events {
			bytes += len(e.Data)
		}
	}
	for events > maxDelayed || bytes > maxDelayedBytes {
		key, ok := q.line.Last(budget.Other)
		if !ok {
			return
		}
		q.line.Remove(key)
		evicted := q.jobs[key].waits.Events
		delete(q.jobs, key)
		for _, e := range evicted {
			events--
			bytes -= len(e.Data)
		}
		q.cfg.Return(key, evicted, q.exceeded)
	}
}

// Exceeded says which budget was exceeded within the last minute, and how many objects wait for
// it.
func (q *Queue) Exceeded(now time.Time) (over budget.Over, delayed int) {
	if q.exceeded == budget.OverNothing || now.Sub(q.at) > exceededWindow {
		return budget.OverNothing, 0
	}
	if q.budgetCheck.IsZero() {
		return q.exceeded, 0
	}
	return q.exceeded, q.line.Len()
}

// Delays let time pass before what failed is tried again, longer each time. They belong to one
// goroutine; the zero value has none.
type Delays struct {
	of map[stream.ResourceKey]delay
}

// delay is a moment to come; zero once it was used.
type delay struct {
	at   time.Time
	last time.Duration
}

// The first delay, and the longest.
const (
	minDelay = time.Second
	maxDelay = 30 * time.Second
)

// Len is of how many objects something failed last.
func (d *Delays) Len() int { return len(d.of) }

// Failed notes that something failed, and returns when to try again.
func (d *Delays) Failed(key stream.ResourceKey, now time.Time) time.Time {
	if d.of == nil {
		d.of = map[stream.ResourceKey]delay{}
	}
	one := d.of[key]
	one.last = min(max(2*one.last, minDelay), maxDelay)
	one.at = now.Add(one.last)
	d.of[key] = one
	return one.at
}

// Forget notes that it did not fail, or that the object is gone.
func (d *Delays) Forget(key stream.ResourceKey) { delete(d.of, key) }

// Waits reports whether an object waits for its time.
func (d *Delays) Waits(key stream.ResourceKey) bool { return !d.of[key].at.IsZero() }

// Expired returns the objects that have waited long enough, which wait no more, and when to ask
// again; zero for never.
func (d *Delays) Expired(now time.Time) (keys []stream.ResourceKey, next time.Time) {
	for key, one := range d.of {
		switch {
		case one.at.IsZero():
		case one.at.After(now):
			if next.IsZero() || one.at.Before(next) {
				next = one.at
			}
		default:
			one.at = time.Time{}
			d.of[key] = one
			keys = append(keys, key)
		}
	}
	return keys, next
}
