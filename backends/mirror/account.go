package mirror

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

const (
	// overMemory is how long it is told that a budget was exceeded.
	overMemory = time.Minute
	// maxDelayed and maxDelayedBytes bound the events that wait for a budget: a quarter of
	// a peer's window, so that what goes first still comes. Others are given back, and
	// come again with the newest content.
	maxDelayed      = 128
	maxDelayedBytes = 1 << 20
	// maxUnderWay is how many bytes may be under way when a further write begins: eight
	// Applications as they mostly are, and one of the largest. A peer's large objects go one
	// after the other, since an API server, and its watches, have nothing for anybody else
	// while they are at one.
	maxUnderWay = 256 << 10
	// overhead is what an object has in etcd beside what an event says of it.
	overhead = 1 << 10
)

// account says which of the jobs that wait goes to a worker, and when. Jobs are named
// here by their objects: what they are to write is read when they go.
type account struct {
	line    budget.Line[stream.ResourceKey]
	objects budget.Objects[stream.ResourceKey]
	// resting are those whose objects were written too often, until when.
	// due is when to look at them: not later than the first.
	resting map[stream.ResourceKey]time.Time
	due     time.Time
	// underWay is how many bytes workers were granted.
	underWay int
	// wake is when to ask the peer's budget again; zero while it is not exceeded. While it
	// is, the line is ordered by class.
	wake time.Time
	// over is the budget that was exceeded last, and at when.
	over budget.Over
	at   time.Time
}

// free reports whether a further job may begin.
func (l *loop) free() bool {
	return l.working < l.m.cfg.Workers && l.account.underWay < maxUnderWay
}

// next is when something may go that waits for time alone; zero for nothing. While no job
// may begin nothing goes, whatever the peer's budget has by then.
func (a *account) next(free bool) time.Time {
	if free && !a.wake.IsZero() && (a.due.IsZero() || a.wake.Before(a.due)) {
		return a.wake
	}
	return a.due
}

// rest lets a job wait until its object may be written again.
func (a *account) rest(key stream.ResourceKey, until time.Time) {
	if a.resting == nil {
		a.resting = map[stream.ResourceKey]time.Time{}
	}
	a.line.Remove(key)
	a.resting[key] = until
	if a.due.IsZero() || until.Before(a.due) {
		a.due = until
	}
}

// rested returns the jobs that have waited for their objects long enough.
func (a *account) rested(now time.Time) []stream.ResourceKey {
	if a.due.IsZero() || a.due.After(now) {
		return nil
	}
	var keys []stream.ResourceKey
	a.due = time.Time{}
	for key, until := range a.resting {
		switch {
		case !until.After(now):
			keys = append(keys, key)
		case a.due.IsZero() || until.Before(a.due):
			a.due = until
		}
	}
	slices.SortFunc(keys, func(a, b stream.ResourceKey) int { return cmp.Compare(a.String(), b.String()) })
	return keys
}

// paid is what a worker wrote.
type paid struct{ writes, bytes int }

// wrote counts a write, and its object as the API server answered it; nil for none.
func (p *paid) wrote(o *backends.Object) {
	p.writes++
	if o != nil {
		p.bytes += o.Size()
	}
}

// kept counts a write of an object beside the one that is worked on.
func (p *paid) kept(w Write) {
	p.writes++
	p.bytes += len(w.Raw)
}

// failed counts a write that the API server did not make, as far as we know.
func (p *paid) failed(w Write, err error) {
	p.writes++
	if !errors.Is(err, stream.ErrConflict) && !errors.Is(err, stream.ErrNotFound) && !errors.Is(err, stream.ErrRefused) {
		p.bytes += len(w.Raw)
	}
}

// enlist puts a job into the line. Its class is asked for only while not all that waits
// may go.
func (l *loop) enlist(key stream.ResourceKey, j *job) {
	class := budget.Other
	if !l.account.wake.IsZero() {
		class = l.class(key, j)
	}
	l.account.line.Add(key, class)
}

// reconsider looks again at a job that waits, and now has more to write.
func (l *loop) reconsider(key stream.ResourceKey, j *job) {
	delete(l.account.resting, key)
	l.enlist(key, j)
}

// class is that of the part of a job that goes first.
func (l *loop) class(key stream.ResourceKey, j *job) budget.Class {
	class := budget.Last
	if j.tend || j.verify || len(j.events) == 0 {
		return budget.First // states of commands, refusals, the ends of objects
	}
	current := l.current(key)
	for _, e := range j.events {
		class = min(class, l.rules.class(e, key, current, l.asked[key]))
	}
	return class
}

// startJobs gives the jobs that may go to workers.
func (l *loop) startJobs(ctx context.Context) {
	a, now := &l.account, time.Now()
	for _, key := range a.rested(now) {
		l.reconsider(key, l.jobs[key])
	}
	if now.Before(a.wake) {
		return
	}
	for l.free() {
		key, class, ok := a.line.Next()
		if !ok {
			if !a.wake.IsZero() {
				a.wake = time.Time{}
				l.m.cfg.Budget.Leave()
			}
			return
		}
		if !l.startJob(ctx, key, class, now) {
			return
		}
	}
}

// startJob lets a job go, or rest; false when no other one may go either.
func (l *loop) startJob(ctx context.Context, key stream.ResourceKey, class budget.Class, now time.Time) bool {
	a, j := &l.account, l.jobs[key]
	if wait := a.objects.Wait(key, class, now); wait > 0 && j.writes() {
		if class != budget.First && a.objects.Wait(key, budget.First, now) < wait && l.class(key, j) == budget.First {
			a.line.Add(key, budget.First)
			return true
		}
		a.rest(key, now.Add(wait))
		l.m.cfg.Metrics.waited(overObject)
		return true
	}
	granted := 0
	if j.writes() {
		granted = l.estimate(key, j)
		over, wait := l.m.cfg.Budget.Take(now, granted)
		if over != budget.OverNothing {
			l.exceed(over, now, wait)
			return false
		}
	}
	a.line.Remove(key)
	l.start(ctx, key, granted)
	return true
}

// writes reports whether a job may write: one that only verifies reads.
func (j *job) writes() bool { return j.tend || len(j.events) > 0 }

// estimate is about how many bytes a job will write.
func (l *loop) estimate(key stream.ResourceKey, j *job) int {
	size, events := 0, 0
	if o, there := l.newest(key); there {
		size = o.Size()
	}
	for _, e := range j.events {
		events += len(e.Data)
	}
	return max(size, events) + overhead
}

// exceed waits until a budget has something again.
func (l *loop) exceed(over budget.Over, now time.Time, wait time.Duration) {
	a := &l.account
	a.over, a.at = over, now
	l.m.cfg.Metrics.waited(over.String())
	if a.wake.IsZero() {
		var line budget.Line[stream.ResourceKey]
		for {
			key, _, ok := a.line.Next()
			if !ok {
				break
			}
			a.line.Remove(key)
			line.Add(key, l.class(key, l.jobs[key]))
		}
		a.line = line
	}
	a.wake = now.Add(wait)
	l.giveBack()
}

// giveBack answers the events that wait beyond maxDelayed, what goes last first: the peer
// sends them again, with what is newest then.
func (l *loop) giveBack() {
	events, bytes := 0, 0
	for _, j := range l.jobs {
		if !j.queued {
			continue
		}
		events += len(j.events)
		for _, e := range j.events {
			bytes += len(e.Data)
		}
	}
	for events > maxDelayed || bytes > maxDelayedBytes {
		key, ok := l.account.line.Last(budget.Other)
		if !ok {
			return
		}
		l.account.line.Remove(key)
		j := l.jobs[key]
		given := j.events
		delete(l.jobs, key)
		for _, e := range given {
			events--
			bytes -= len(e.Data)
			l.step(link.Held{
				Key: e.Key, Version: l.heldNow(e.Key, key), Event: e.ID,
				Refusal: &stream.Refusal{Kind: stream.RefusalUnavailable, Message: "over budget: " + l.account.over.Sentence()},
			})
		}
		l.m.cfg.Metrics.givenBack(len(given))
	}
}

// heldNow is what this side holds of an entry of which nothing is under way.
func (l *loop) heldNow(entry stream.EntryKey, key stream.ResourceKey) stream.Version {
	current := l.current(key)
	switch {
	case current == nil:
		return stream.Version{}
	case entry.Collection == stream.Commands:
		return l.taken[entry].held(*current)
	}
	var last *Reply
	if reply, ok := l.replies[entry]; ok {
		last = &reply
	}
	return l.rules.Held(entry.Collection, *current, last)
}

// pay settles what a job was granted with what it wrote.
func (l *loop) pay(o outcome, granted int) {
	now := time.Now()
	l.account.underWay -= granted
	if granted > 0 {
		l.m.cfg.Budget.Settle(now, granted, o.paid.writes, o.paid.bytes)
	}
	l.account.objects.Wrote(o.key, o.paid.writes, now)
}

// overBudget says which budget was exceeded within the last minute, and how many objects
// wait for it.
func (l *loop) overBudget() (over budget.Over, delayed int) {
	a := &l.account
	if a.over == budget.OverNothing || time.Since(a.at) > overMemory {
		return budget.OverNothing, 0
	}
	if a.wake.IsZero() {
		return a.over, 0
	}
	return a.over, a.line.Len()
}

// overObject is the label of what waits since its object was written too often.
const overObject = "object"
