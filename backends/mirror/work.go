package mirror

import (
	"bytes"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/jobs"
	"github.com/argomesh/argomesh/backends/view"
	"github.com/argomesh/argomesh/backends/worker"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// work is what workers do, and what waits to be tried again.
type work struct {
	*shared
	burst    bool // there were many of jobs, of what the cache is behind, or of cached content
	workers  sync.WaitGroup
	commands *commands
	answers  *answers
	inbox    *inbox
	source   *source
	worker   *worker.Worker
	results  chan<- worker.Outcome
	later    jobs.Delays // upkeep that failed
	// unfamiliar are objects that the API server is being asked about, since the peer holds
	// them and the cache never showed them; the time is when to ask again, zero while that
	// is under way.
	unfamiliar map[stream.ResourceKey]time.Time
}

// retry looks again at the objects whose upkeep failed, once they have waited.
func (u *work) retry() {
	keys, next := u.later.Expired(time.Now())
	if !next.IsZero() {
		u.scheduleLook(next)
	}
	u.observeEach(keys)
}

// What the peer holds and the cache never showed is gone, or the cache is behind: an agent
// takes over from another one whose watch was ahead of its own, or a principal lives beside
// another. The API server itself says which, before anything goes for being absent. It is
// one read for each object that went while this process did not look.

// askUnfamiliar asks the API server about the entries whose absence the link has to verify.
func (u *work) askUnfamiliar() {
	for _, entry := range u.link.Unfamiliar() {
		key, ours := u.rules.Local(entry)
		if !ours {
			u.step(link.Verified{Key: entry}) // there can be none
			continue
		}
		u.unfamiliar[key] = time.Time{}
		u.jobs.Verify(key)
	}
}

// familiar takes the answer, which was observed.
func (u *work) familiar(o worker.Outcome) {
	switch _, asked := u.unfamiliar[o.Key]; {
	case !asked:
	case !o.Known:
		retryAt := time.Now().Add(askPause)
		u.unfamiliar[o.Key] = retryAt
		u.scheduleLook(retryAt)
	default:
		delete(u.unfamiliar, o.Key)
		for _, entry := range u.rules.Keys(o.Key) {
			if u.rules.Sources(entry.Collection) {
				u.step(link.Verified{Key: entry})
			}
		}
	}
}

// askPause is the pause after the API server could not be asked.
const askPause = time.Second

// askAgain asks again where the API server did not answer.
func (u *work) askAgain() {
	for key, retryAt := range u.unfamiliar {
		switch {
		case retryAt.IsZero():
		case retryAt.After(time.Now()):
			u.scheduleLook(retryAt)
		default:
			u.unfamiliar[key] = time.Time{}
			u.jobs.Verify(key)
		}
	}
}

// verify asks the API server about writes that the cache did not show in time.
func (u *work) verify() {
	late, next := u.view.Late(time.Now())
	if !next.IsZero() {
		u.scheduleLook(next)
	}
	for _, key := range late {
		u.jobs.Verify(key)
	}
}

// newJobs is what waits for workers.
func (u *work) newJobs() *jobs.Queue {
	return jobs.New(jobs.Config{
		Workers: u.env.cfg.Workers, Budget: u.env.cfg.Budget, Class: u.class, Return: u.returnEvents,
		Waited: u.env.cfg.Metrics.Waited,
		Size: func(key stream.ResourceKey) int {
			o, _ := u.view.Newest(key)
			return o.Size()
		},
	})
}

// class is that of the event of an object that goes first.
func (u *work) class(key stream.ResourceKey, events map[stream.EntryKey]stream.Event) budget.Class {
	class, current := budget.Last, u.view.Current(key)
	for _, e := range events {
		class = min(class, u.rules.Class(e, key, current, u.commands.asked[key]))
	}
	return class
}

// returnEvents answers events for which there is no budget: the peer sends them again.
func (u *work) returnEvents(key stream.ResourceKey, events map[stream.EntryKey]stream.Event, over budget.Over) {
	for _, e := range events {
		u.step(link.Stored{
			Key: e.Key, Version: u.inbox.storedVersion(e.Key, key), Event: e.ID,
			Refusal: &stream.Refusal{Kind: stream.RefusalUnavailable, Message: "over budget: " + over.Sentence()},
		})
	}
	u.env.cfg.Metrics.Returned(len(events))
}

func (u *work) task(key stream.ResourceKey, w jobs.Work) worker.Task {
	t := worker.Task{
		Key: key, Rules: u.rules, Events: w.Events, Seen: w.Seen, Update: w.Update, Verify: w.Verify, Newer: w.Newer,
		Asked: u.commands.asked[key],
		Taken: u.inbox.taken[u.rules.Entry(stream.Commands, key)], Room: u.inbox.weights.Room(key, u.inbox.bounds),
	}
	if s := u.session; s != nil {
		t.Withdrawn, t.Detached = s.Withdrawn, s.Detached
	}
	if o, ok := u.view.Newest(key); ok {
		t.Current = &o
	}
	if t.Current != nil && t.Update {
		if t.Parsed = u.view.Current(key); t.Parsed != nil {
			t.State = u.source.linkState(key, *t.Parsed)
		}
	}
	return t
}

// startJobs gives the jobs that may go to workers.
func (u *work) startJobs(ctx context.Context) {
	u.jobs.Start(time.Now(), func(key stream.ResourceKey, w jobs.Work) {
		t := u.task(key, w)
		u.inbox.reserve(t)
		u.workers.Go(func() { u.do(ctx, t) })
	})
}

func (u *work) finish(o worker.Outcome) {
	u.jobs.Done(o.Key, o.Paid.Writes, o.Paid.Bytes, time.Now())
	if o.Known {
		u.view.Wrote(o.Key, o.Object, o.UID, o.Schemas, time.Now())
		u.scheduleLook(time.Now().Add(view.CatchUpTime))
	}
	if o.Cause.IsValid() {
		u.source.outbox.appliedTraces[o.Key] = effect{context: o.Cause, at: time.Now()}
	}
	for _, r := range o.Results {
		u.answer(o, r)
	}
	if o.Failed {
		u.scheduleLook(u.later.Failed(o.Key, time.Now()))
	} else {
		u.later.Forget(o.Key)
	}
	if !u.jobs.Finish(o.Key) {
		return
	}
	if now, there := u.view.Newest(o.Key); !there || o.Object == nil || !bytes.Equal(now.Raw, o.Object.Raw) {
		o.Parsed = nil // a schema that becomes older leaves the resourceVersion, and takes content
	}
	u.env.whole.observeAgain(o.Key, o.Parsed)
	u.familiar(o)
}

// do does one task, when there is room for it, and reports to the loop, unless that has
// ended.
func (u *work) do(ctx context.Context, t worker.Task) {
	o, err := u.worker.Do(ctx, t)
	if err != nil {
		return // ctx is done
	}
	select {
	case u.results <- o:
	case <-ctx.Done():
	}
}

// shrink gives back the memory that a burst took, once it is over: a map keeps room
// for the most that it ever held, and when a spoke connects that may be all it has.
func (u *work) shrink() {
	switch most := max(u.jobs.Len(), u.view.Len(), len(u.source.outbox.contentCache)); {
	case most > maxSpare:
		u.burst = true
	case most == 0 && u.burst:
		u.burst = false
		u.source.outbox.contentCache = map[stream.EntryKey]cachedContent{}
		u.jobs.Shrink()
		u.view.Shrink()
	}
}

// maxSpare is how many entries there may be of what is under way before that counts
// as a burst.
const maxSpare = 64

// answer answers an event as a worker says.
func (u *work) answer(o worker.Outcome, r worker.Result) {
	entry := r.Event.Key
	stored := u.inbox.recordResult(r, o)
	r.Refusal = u.answers.instead(r.Awaits, r.Refusal)
	result := "applied"
	if r.Refusal != nil {
		result = "refused"
		u.env.log.WithLevel(severity(*r.Refusal)).Stringer("resource", entry).Str("kind", string(r.Refusal.Kind)).
			Str("reason", r.Refusal.Message).Msg("entry was not applied")
	}
	u.env.cfg.Metrics.Received(entry.Collection, result)
	u.answers.refused.Record(r.Event, r.Refusal, time.Now())
	if r.Refusal != nil && r.Refusal.Kind == stream.RefusalNotOwned {
		u.answers.refused.StoodIn(entry, u.view.Current(o.Key))
	}
	if r.Undone != "" {
		u.answers.putBack(entry, r.Undone)
	}
	u.step(link.Stored{
		Key: entry, Version: stored, Event: r.Event.ID, Refusal: r.Refusal, Undone: r.Undone, Dropped: r.Dropped,
		Retry: r.Wanted,
	})
	u.answers.await(entry, r.Awaits)
	if r.Refusal != nil && r.Refusal.Kind == stream.RefusalInvalid && !maps.Equal(o.Schemas, u.rules.Schemas) {
		u.step(link.Retry{Key: entry}) // it was planned by what is no longer known
	}
}
