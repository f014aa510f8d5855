package mirror

import (
	"bytes"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/jobs"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/view"
	"github.com/argomesh/argomesh/backends/worker"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// work is what workers do, and upkeep that waits to be tried again.
type work struct {
	*core
	burst   bool // there were many of jobs, of what the cache is behind, or of made
	workers sync.WaitGroup
	later   jobs.Delays // upkeep that failed
	// unfamiliar are objects that the API server is being asked about, since the peer holds
	// them and the cache never showed them; the time is when to ask again, zero while that
	// is under way.
	unfamiliar map[stream.ResourceKey]time.Time
}

// newJobs is what waits for workers.
func (u *work) newJobs() *jobs.Queue {
	return jobs.New(jobs.Config{
		Workers: u.m.cfg.Workers, Budget: u.m.cfg.Budget, Class: u.class, GiveBack: u.giveBack, Waited: u.m.cfg.Metrics.waited,
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
		class = min(class, u.rules.Class(e, key, current, u.l.commands.asked[key]))
	}
	return class
}

// giveBack answers events for which there is no budget.
func (u *work) giveBack(key stream.ResourceKey, events map[stream.EntryKey]stream.Event, over budget.Over) {
	for _, e := range events {
		u.step(link.Held{
			Key: e.Key, Version: u.l.inbox.heldNow(e.Key, key), Event: e.ID,
			Refusal: &stream.Refusal{Kind: stream.RefusalUnavailable, Message: "over budget: " + over.Sentence()},
		})
	}
	u.m.cfg.Metrics.givenBack(len(events))
}

func (u *work) task(key stream.ResourceKey, w jobs.Work) worker.Task {
	t := worker.Task{
		Key: key, Rules: u.rules, Events: w.Events, Seen: w.Seen, Tend: w.Tend, Verify: w.Verify, Newer: w.Newer, Asked: u.l.commands.asked[key],
		Taken: u.l.inbox.taken[u.rules.Entry(stream.Commands, key)], Room: u.l.inbox.weights.Room(key, u.l.inbox.bounds),
	}
	if s := u.session; s != nil {
		t.Withdrawn, t.Over = s.withdrawn, s.over
	}
	if o, ok := u.view.Newest(key); ok {
		t.Current = &o
	}
	if t.Current != nil && t.Tend {
		if t.Parsed = u.view.Current(key); t.Parsed != nil {
			t.Situation = u.l.situation(key, *t.Parsed)
		}
	}
	return t
}

// startJobs gives the jobs that may go to workers.
func (u *work) startJobs(ctx context.Context) {
	u.jobs.Start(time.Now(), func(key stream.ResourceKey, w jobs.Work) {
		t := u.task(key, w)
		u.l.inbox.reserve(t)
		u.workers.Go(func() { u.m.work(ctx, t) })
	})
}

func (l *loop) finish(o worker.Outcome) {
	l.jobs.Done(o.Key, o.Paid.Writes, o.Paid.Bytes, time.Now())
	if o.Known {
		l.view.Wrote(o.Key, o.Object, o.UID, o.Schemas, time.Now())
		l.lookAt(time.Now().Add(view.SettleTime))
	}
	if o.Cause.IsValid() {
		l.outbox.effects[o.Key] = effect{context: o.Cause, at: time.Now()}
	}
	for _, r := range o.Results {
		entry := r.Event.Key
		held := r.Held
		switch {
		case entry.Collection == stream.Commands && r.Refusal == nil && r.Event.Verb == stream.Apply:
			held = r.Event.Version
			l.inbox.taken[entry] = operations.TakenOf(r.Event, o.UID)
		case entry.Collection == stream.Commands && r.Event.Verb == stream.Delete:
			delete(l.inbox.taken, entry)
			held = stream.Version{}
		case entry.Collection == stream.Commands && o.Parsed != nil:
			held = l.inbox.taken[entry].Held(*o.Parsed)
		case r.Reply != nil:
			l.inbox.replies[entry] = *r.Reply
		case r.Implied:
			delete(l.inbox.replies, entry)
		}
		r.Refusal = l.answers.instead(r.Awaits, r.Refusal)
		result := "applied"
		if r.Refusal != nil {
			result = "refused"
			l.m.log.WithLevel(severity(*r.Refusal)).Stringer("resource", entry).Str("kind", string(r.Refusal.Kind)).
				Str("reason", r.Refusal.Message).Msg("entry was not applied")
		}
		l.m.cfg.Metrics.received(entry.Collection, result)
		l.answers.refused.Note(r.Event, r.Refusal, time.Now())
		if r.Refusal != nil && r.Refusal.Kind == stream.RefusalNotOwned {
			l.answers.refused.StoodIn(entry, l.view.Current(o.Key))
		}
		if r.Undone != "" {
			l.answers.putBack(entry, r.Undone)
		}
		l.step(link.Held{
			Key: entry, Version: held, Event: r.Event.ID, Refusal: r.Refusal, Undone: r.Undone, Dropped: r.Dropped, Retry: r.Wanted,
		})
		l.answers.await(entry, r.Awaits)
		if r.Refusal != nil && r.Refusal.Kind == stream.RefusalInvalid && !maps.Equal(o.Schemas, l.rules.Schemas) {
			l.step(link.Retry{Key: entry}) // it was planned by what is no longer known
		}
	}
	if o.Failed {
		l.lookAt(l.work.later.Failed(o.Key, time.Now()))
	} else {
		l.work.later.Forget(o.Key)
	}
	if !l.jobs.Finish(o.Key) {
		return
	}
	if now, there := l.view.Newest(o.Key); !there || o.Object == nil || !bytes.Equal(now.Raw, o.Object.Raw) {
		o.Parsed = nil // a schema that becomes older leaves the resourceVersion, and takes content
	}
	l.observeAgain(o.Key, o.Parsed)
	l.work.familiar(o)
}

// retry looks again at the objects whose upkeep failed, once they have waited.
func (u *work) retry() {
	keys, next := u.later.Over(time.Now())
	if !next.IsZero() {
		u.lookAt(next)
	}
	u.observeEach(keys)
}

// work does one task, when there is room for it, and reports to the loop, unless that has
// ended.
func (m *Mirror) work(ctx context.Context, t worker.Task) {
	o, err := m.worker.Do(ctx, t)
	if err != nil {
		return // ctx is done
	}
	select {
	case m.results <- o:
	case <-ctx.Done():
	}
}

// What the peer holds and the cache never showed is gone, or the cache is behind: an agent
// takes over from another one whose watch was ahead of its own, or a principal lives beside
// another. The API server itself says which, before anything goes for being absent. It is
// one read for each object that went while this process did not look.

// askUnfamiliar has the API server asked about what the link doubts.
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
		again := time.Now().Add(askPause)
		u.unfamiliar[o.Key] = again
		u.lookAt(again)
	default:
		delete(u.unfamiliar, o.Key)
		for _, entry := range u.rules.Keys(o.Key) {
			if u.rules.Sources(entry.Collection) {
				u.step(link.Verified{Key: entry})
			}
		}
	}
}

// askAgain asks again where the API server did not answer.
func (u *work) askAgain() {
	for key, again := range u.unfamiliar {
		switch {
		case again.IsZero():
		case again.After(time.Now()):
			u.lookAt(again)
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
		u.lookAt(next)
	}
	for _, key := range late {
		u.jobs.Verify(key)
	}
}
