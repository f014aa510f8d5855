// Package jobs holds the work that waits on the objects of one link, and says which of it goes
// when: no more at once than there are workers and room, and no more than the budget of the
// peer, and of each object, allow.
package jobs

import (
	"time"

	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/stream"
)

const (
	// maxDelayed and maxDelayedBytes bound the events that wait for a budget: a quarter of
	// a peer's window, so that what goes first still comes. Others are returned, and
	// come again with the newest content.
	maxDelayed      = 128
	maxDelayedBytes = 1 << 20
	// maxUnderWay is how many bytes may be under way when a further write begins: eight
	// Applications as they mostly are, and one of the largest. A peer's large objects go one
	// after the other, since an API server, and its watches, have nothing for anyone else
	// while they are at one.
	maxUnderWay = 256 << 10
	// overhead is what an object has in etcd beside what an event says of it.
	overhead = 1 << 10
	// exceededWindow is for how long Exceeded tells of a budget that was exceeded.
	exceededWindow = time.Minute
)

// Config holds what a Queue needs. All of it is required.
type Config struct {
	// Workers is how many jobs may be under way.
	Workers int
	// Budget is what the peer may have us write.
	Budget *budget.Peer
	// Class says how soon events of an object are to be written; there is at least one.
	Class func(key stream.ResourceKey, events map[stream.EntryKey]stream.Event) budget.Class
	// Size is how many bytes an object has now; zero when there is none.
	Size func(key stream.ResourceKey) int
	// Return takes events that wait for a budget and are too many. It may call Add.
	Return func(key stream.ResourceKey, events map[stream.EntryKey]stream.Event, over budget.Over)
	// Waited is told that something waits: for what is over, or for its object.
	Waited func(over budget.Over)
}

// Queue holds at most one job for each object. It belongs to one goroutine; New makes one.
type Queue struct {
	cfg Config
	// jobs are those that wait or are under way, by their objects. What they are to write is
	// read when they go.
	jobs    map[stream.ResourceKey]*job
	working int // jobs under way
	// underWay is how many bytes these were granted.
	underWay int
	line     budget.Line[stream.ResourceKey]
	objects  budget.Objects[stream.ResourceKey]
	// postponed are those whose objects were written too often, until when.
	// due is when to look at them: not later than the first.
	postponed map[stream.ResourceKey]time.Time
	due       time.Time
	// budgetCheck is when to ask the peer's budget again; zero while it is not exceeded. While it
	// is, the line is ordered by class.
	budgetCheck time.Time
	// exceeded is the budget that was exceeded last, and at when.
	exceeded budget.Over
	at       time.Time
}

// New returns an empty Queue.
func New(cfg Config) *Queue { return &Queue{cfg: cfg, jobs: map[stream.ResourceKey]*job{}} }

// Work is what there is to do on an object.
type Work struct {
	// Events are the newest of each entry. They are not changed any more.
	Events map[stream.EntryKey]stream.Event
	// Seen are the resourceVersions that the object had when these came; empty for none.
	Seen map[stream.EntryKey]string
	// Update says that upkeep is needed, and Verify that the API server is to be asked.
	Update, Verify bool
	// Newer are closed when a newer event of the entry comes while the work is under way.
	Newer map[stream.EntryKey]chan struct{}
}

// writes reports whether work may write: one that only verifies reads.
func (w Work) writes() bool { return w.Update || len(w.Events) > 0 }

// some reports whether there is anything to do.
func (w Work) some() bool { return w.writes() || w.Verify }

// job is the work on one object.
type job struct {
	waits Work
	// newer is Work.Newer of what is under way.
	newer   map[stream.EntryKey]chan struct{}
	queued  bool // stands in the line, or is postponed
	granted int  // bytes, of one that is under way
	running bool
}

// Len is the number of objects with work that waits or is under way.
func (q *Queue) Len() int { return len(q.jobs) }

// Ready is the number of those that wait for a worker, or for the budget.
func (q *Queue) Ready() int { return q.line.Len() }

// Postponed is the number of those that wait since they were written too often.
func (q *Queue) Postponed() int { return len(q.postponed) }

// Working is the number of those with work under way.
func (q *Queue) Working() int { return q.working }

// Shrink gives back the memory of a burst. It is called when Len is zero.
func (q *Queue) Shrink() { q.jobs = map[stream.ResourceKey]*job{} }

// Running reports whether work on an object is under way.
func (q *Queue) Running(key stream.ResourceKey) bool {
	j := q.jobs[key]
	return j != nil && j.running
}

// AllRunning yields the objects on which work is under way.
func (q *Queue) AllRunning(yield func(stream.ResourceKey) bool) {
	for key, j := range q.jobs {
		if j.running && !yield(key) {
			return
		}
	}
}

// Add adds an event about an object, which has that resourceVersion now; empty for none. It
// takes the place of one of the same entry that waits, and closes Newer of one under way.
func (q *Queue) Add(key stream.ResourceKey, e stream.Event, seen string) {
	j := q.job(key)
	if j.waits.Events == nil {
		j.waits.Events, j.waits.Seen = map[stream.EntryKey]stream.Event{}, map[stream.EntryKey]string{}
	}
	j.waits.Events[e.Key], j.waits.Seen[e.Key] = e, seen
	if newer := j.newer[e.Key]; newer != nil {
		close(newer)
		delete(j.newer, e.Key)
	}
	q.schedule(key, j)
}

// Update schedules an update of the hub's object.
func (q *Queue) Update(key stream.ResourceKey) {
	j := q.job(key)
	j.waits.Update = true
	q.schedule(key, j)
}

// Verify has the API server asked about an object.
func (q *Queue) Verify(key stream.ResourceKey) {
	j := q.job(key)
	j.waits.Verify = true
	q.schedule(key, j)
}

// DropEvents forgets the events that wait. Jobs without them go all the same.
func (q *Queue) DropEvents() {
	for _, j := range q.jobs {
		j.waits.Events = nil
	}
}

func (q *Queue) job(key stream.ResourceKey) *job {
	j := q.jobs[key]
	if j == nil {
		j = &job{}
		q.jobs[key] = j
	}
	return j
}

// schedule puts the job into the line unless it stands in it, or is under way.
func (q *Queue) schedule(key stream.ResourceKey, j *job) {
	switch {
	case j.running:
		return // Finish comes back to it
	case j.queued:
		q.reconsider(key, j)
		return
	}
	j.queued = true
	q.enlist(key, j)
}

// enlist puts a job into the line. Its class is asked for only while not all that waits
// may go.
func (q *Queue) enlist(key stream.ResourceKey, j *job) {
	class := budget.Other
	if !q.budgetCheck.IsZero() {
		class = q.class(key, j)
	}
	q.line.Add(key, class)
}

// reconsider looks again at a job that waits, and now has more to write.
func (q *Queue) reconsider(key stream.ResourceKey, j *job) {
	delete(q.postponed, key)
	q.enlist(key, j)
}

// class is that of the part of a job that goes first.
func (q *Queue) class(key stream.ResourceKey, j *job) budget.Class {
	if j.waits.Update || j.waits.Verify || len(j.waits.Events) == 0 {
		return budget.First // states of commands, refusals, the ends of objects
	}
	return q.cfg.Class(key, j.waits.Events)
}

// Free reports whether a further job may begin.
func (q *Queue) Free() bool { return q.working < q.cfg.Workers && q.underWay < maxUnderWay }

// Delayed reports whether something waits for the budget.
func (q *Queue) Delayed() bool { return !q.budgetCheck.IsZero() }

// Start calls start for each job that may go now. It is under way from then on, until Done.
func (q *Queue) Start(now time.Time, start func(key stream.ResourceKey, w Work)) {
	for _, key := range q.postponedUntil(now) {
		q.reconsider(key, q.jobs[key])
	}
	if now.Before(q.budgetCheck) {
		return
	}
	for q.Free() {
		key, class, ok := q.line.Next()
		if !ok {
			if !q.budgetCheck.IsZero() {
				q.budgetCheck = time.Time{}
				q.cfg.Budget.Leave()
			}
			return
		}
		if !q.startOne(key, class, now, start) {
			return
		}
	}
}

// startOne lets a job go, or postpones it; false when no other one may go either.
func (q *Queue) startOne(key stream.ResourceKey, class budget.Class, now time.Time,
	start func(stream.ResourceKey, Work)) bool {
	j := q.jobs[key]
	if wait := q.objects.Wait(key, class, now); wait > 0 && j.waits.writes() {
		if class != budget.First && q.objects.Wait(key, budget.First, now) < wait && q.class(key, j) == budget.First {
			q.line.Add(key, budget.First)
			return true
		}
		q.postpone(key, now.Add(wait))
		q.cfg.Waited(budget.OverNothing)
		return true
	}
	granted := 0
	if j.waits.writes() {
		granted = q.estimate(key, j)
		over, wait := q.cfg.Budget.Acquire(now, granted)
		if over != budget.OverNothing {
			q.exceed(over, now, wait)
			return false
		}
	}
	q.line.Remove(key)
	w := j.waits
	w.Newer = map[stream.EntryKey]chan struct{}{}
	newer := map[stream.EntryKey]chan struct{}{}
	for entry := range w.Events {
		w.Newer[entry] = make(chan struct{})
		newer[entry] = w.Newer[entry]
	}
	*j = job{running: true, newer: newer, granted: granted}
	q.working++
	q.underWay += granted
	start(key, w)
	return true
}

// estimate is about how many bytes a job will write.
func (q *Queue) estimate(key stream.ResourceKey, j *job) int {
	events := 0
	for _, e := range j.waits.Events {
		events += object.StoredBytes(e.Data)
	}
	return max(q.cfg.Size(key), events) + overhead
}

// Done charges what a job wrote against what it was granted. What is added from now on waits
// until Finish.
func (q *Queue) Done(key stream.ResourceKey, writes, bytes int, now time.Time) {
	q.working--
	j := q.jobs[key]
	j.running, j.newer = false, nil
	q.underWay -= j.granted
	if j.granted > 0 {
		q.cfg.Budget.Charge(now, j.granted, writes, bytes)
	}
	q.objects.Wrote(key, writes, now)
}

// Finish forgets the job of an object, or schedules it if there is more to do, and reports
// which: true when it is over.
func (q *Queue) Finish(key stream.ResourceKey) bool {
	j := q.jobs[key]
	if j.waits.some() {
		q.schedule(key, j)
		return false
	}
	delete(q.jobs, key)
	return true
}
