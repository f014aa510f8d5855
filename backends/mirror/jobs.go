package mirror

import (
	"bytes"
	"context"
	"maps"
	"time"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

func (l *loop) job(key stream.ResourceKey) *job {
	j := l.jobs[key]
	if j == nil {
		j = &job{}
		l.jobs[key] = j
	}
	return j
}

// schedule puts the job into the line unless it stands in it, or is under way.
func (l *loop) schedule(key stream.ResourceKey, j *job) {
	switch {
	case j.running:
		return // finish comes back to it
	case j.queued:
		l.reconsider(key, j)
		return
	}
	j.queued = true
	l.enlist(key, j)
}

func (l *loop) task(key stream.ResourceKey) task {
	j := l.jobs[key]
	t := task{
		key: key, rules: l.rules, events: j.events, seen: j.seen, tend: j.tend, verify: j.verify, asked: l.asked[key],
		taken: l.taken[l.rules.entry(stream.Commands, key)], room: l.weights.room(key, l.bounds),
	}
	if s := l.session; s != nil {
		t.withdrawn, t.over = s.withdrawn, s.over
	}
	if o, ok := l.newest(key); ok {
		t.current = &o
	}
	if t.current != nil && t.tend {
		if t.parsed = l.current(key); t.parsed != nil {
			t.situation = l.situation(key, *t.parsed)
		}
	}
	return t
}

// start gives a job to a worker, which may write about so many bytes.
func (l *loop) start(ctx context.Context, key stream.ResourceKey, granted int) {
	t := l.task(key)
	newer := map[stream.EntryKey]chan struct{}{}
	for key := range t.events {
		newer[key] = make(chan struct{})
	}
	t.newer = newer
	l.reserve(t)
	*l.jobs[t.key] = job{running: true, newer: newer, granted: granted}
	l.working++
	l.account.underWay += granted
	l.workers.Go(func() { l.m.work(ctx, t) })
}

func (l *loop) finish(o outcome) {
	l.working--
	j := l.jobs[o.key]
	j.running, j.newer = false, nil
	l.pay(o, j.granted)
	if o.known {
		l.ahead[o.key] = ahead{object: o.object, uid: o.uid, since: time.Now(), schemas: o.schemas}
		l.lookAt(time.Now().Add(settleTime))
	}
	if o.cause.IsValid() {
		l.effects[o.key] = effect{context: o.cause, at: time.Now()}
	}
	for _, r := range o.results {
		entry := r.event.Key
		held := r.held
		switch {
		case entry.Collection == stream.Commands && r.refusal == nil && r.event.Verb == stream.Apply:
			held = r.event.Version
			l.taken[entry] = takenOf(r.event, o.uid)
		case entry.Collection == stream.Commands && r.event.Verb == stream.Delete:
			delete(l.taken, entry)
			held = stream.Version{}
		case entry.Collection == stream.Commands && o.parsed != nil:
			held = l.taken[entry].held(*o.parsed)
		case r.reply != nil:
			l.replies[entry] = *r.reply
		case r.implied:
			delete(l.replies, entry)
		}
		r.refusal = l.instead(r.awaits, r.refusal)
		result := "applied"
		if r.refusal != nil {
			result = "refused"
			l.m.log.WithLevel(severity(*r.refusal)).Stringer("resource", entry).Str("kind", string(r.refusal.Kind)).
				Str("reason", r.refusal.Message).Msg("entry was not applied")
		}
		l.m.cfg.Metrics.received(entry.Collection, result)
		l.refused.note(r.event, r.refusal, time.Now())
		if r.refusal != nil && r.refusal.Kind == stream.RefusalNotOwned {
			l.refused.stoodIn(entry, l.current(o.key))
		}
		if r.undone != "" {
			l.putBack(entry, r.undone)
		}
		l.step(link.Held{
			Key: entry, Version: held, Event: r.event.ID, Refusal: r.refusal, Undone: r.undone, Dropped: r.dropped, Retry: r.wanted,
		})
		l.await(entry, r.awaits)
		if r.refusal != nil && r.refusal.Kind == stream.RefusalInvalid && !maps.Equal(o.schemas, l.rules.Schemas) {
			l.step(link.Retry{Key: entry}) // it was planned by what is no longer known
		}
	}
	if o.failed {
		l.postpone(o.key)
	} else {
		delete(l.later, o.key)
	}
	if len(j.events) > 0 || j.tend || j.verify {
		l.schedule(o.key, j)
		return
	}
	delete(l.jobs, o.key)
	if now, there := l.newest(o.key); !there || o.object == nil || !bytes.Equal(now.Raw, o.object.Raw) {
		o.parsed = nil // a schema that becomes older leaves the resourceVersion, and takes content
	}
	l.observeAgain(o.key, o.parsed)
	l.familiar(o)
}

// postpone lets time pass before upkeep that failed is tried again.
func (l *loop) postpone(key stream.ResourceKey) {
	d := l.later[key]
	d.delay = min(max(2*d.delay, time.Second), 30*time.Second)
	d.at = time.Now().Add(d.delay)
	l.later[key] = d
	l.lookAt(d.at)
}

// lookAt sees to it that verify, retry and speak run at t at the latest.
func (l *loop) lookAt(t time.Time) {
	if l.look.IsZero() || t.Before(l.look) {
		l.look = t
	}
}

// retry looks again at the objects whose postponement is over.
func (l *loop) retry() {
	for key, d := range l.later {
		switch {
		case d.at.IsZero():
		case d.at.After(time.Now()):
			l.lookAt(d.at)
		default:
			d.at = time.Time{}
			l.later[key] = d
			l.observe(key)
		}
	}
}
