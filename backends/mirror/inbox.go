package mirror

import (
	"time"

	"github.com/argomesh/argomesh/backends/bounds"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/worker"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
	"github.com/argomesh/argomesh/stream/quota"
)

// inbox holds what was received from the peer: the memory reserved for it, which events were
// handled, and the size of the peer's objects.
type inbox struct {
	*shared
	answers *answers
	// opened gives back the room of each event that is not answered, by its id.
	opened  map[string]func()
	replies map[stream.EntryKey]ownership.Reply
	taken   map[stream.EntryKey]operations.TakenCommand // by this spoke
	// weights are what the peer's objects have, and bounds what they may.
	weights bounds.Weights
	bounds  bounds.Bounds
}

// open takes the room in which the content of an event waits for its answer, and returns
// the event without content where there is none: its answer says so, and what comes after
// it does not wait.
func (i *inbox) open(e stream.Event) stream.Event {
	if len(e.Data) == 0 {
		return e
	}
	release, ok := i.env.cfg.Quota.TryAcquire(i.rules.Agent, quota.Open, int64(len(e.Data)))
	if !ok {
		e.Data = nil
		return e
	}
	i.opened[e.ID] = release
	return e
}

// close gives the room of an event back that is answered.
func (i *inbox) close(event string) {
	if release := i.opened[event]; release != nil {
		release()
		delete(i.opened, event)
	}
}

// closeAll gives back the room of all events.
func (i *inbox) closeAll() {
	for _, release := range i.opened {
		release()
	}
	i.opened = map[string]func(){}
}

// updateWeight notes what an object has now.
func (i *inbox) updateWeight(key stream.ResourceKey, current *object.Object) {
	var now bounds.Weight
	if current != nil && bounds.Weighs(key.Kind) {
		now.Copy = i.rules.IsCopy(*current)
		if now.Copy || i.rules.Side == stream.Hub && i.rules.Mode == stream.Managed && key.Kind == stream.Application {
			if o, ok := i.view.Newest(key); ok {
				now.Bytes = len(o.Raw)
			}
		}
	}
	i.weights.Set(key, now)
}

// reserve keeps the place of an object that a worker may be about to make.
func (i *inbox) reserve(t worker.Task) {
	if t.Current != nil {
		return
	}
	for _, e := range t.Events {
		if bounds.Applies(e) && e.Key.Collection != stream.Statuses {
			i.weights.Set(t.Key, bounds.Weight{Bytes: len(e.Data), Copy: true})
		}
	}
}

// rebound takes the bounds that Bound was last told, and what they refused before.
func (i *inbox) rebound() {
	bounds := i.env.settings.bounds.Load()
	if bounds == nil || *bounds == i.bounds {
		return
	}
	i.bounds = *bounds
	for _, key := range i.answers.refused.OfKind(stream.RefusalOverLimit) {
		i.step(link.Retry{Key: key})
	}
}

// storedVersion is what this side stores of an entry of which nothing is under way.
func (i *inbox) storedVersion(entry stream.EntryKey, key stream.ResourceKey) stream.Version {
	current := i.view.Current(key)
	switch {
	case current == nil:
		return stream.Version{}
	case entry.Collection == stream.Commands:
		return i.taken[entry].Stored(*current)
	}
	var last *ownership.Reply
	if reply, ok := i.replies[entry]; ok {
		last = &reply
	}
	return i.rules.Stored(entry.Collection, *current, last)
}

// apply queues an event for a worker.
func (i *inbox) apply(e stream.Event) {
	key, ok := i.rules.Local(e.Key)
	if !ok {
		i.env.cfg.Metrics.Received(e.Key.Collection, "refused")
		refusal := i.rules.Outside(e.Key)
		if e.Verb == stream.Apply {
			i.answers.refused.Record(e, refusal, time.Now())
		}
		i.step(link.Stored{Key: e.Key, Event: e.ID, Refusal: refusal})
		return
	}
	current, _ := i.view.Newest(key)
	i.jobs.Add(key, e, current.ResourceVersion)
}

// reportStored tells the link what this side stores of an entry now.
func (i *inbox) reportStored(entry stream.EntryKey, current *object.Object) {
	switch {
	case current == nil:
		delete(i.replies, entry)
		delete(i.taken, entry)
		i.step(link.Stored{Key: entry})
	case entry.Collection == stream.Commands:
		i.step(link.Stored{Key: entry, Version: i.taken[entry].Stored(*current)})
	default:
		var last *ownership.Reply
		if reply, ok := i.replies[entry]; ok {
			last = &reply
		}
		stored := i.rules.Stored(entry.Collection, *current, last)
		i.answers.refused.Stored(entry, stored)
		i.step(link.Stored{
			Key: entry, Version: stored, Dropped: i.rules.Dropped(entry.Collection, *current),
			Retry: i.rules.Wants(entry.Collection, *current),
		})
	}
}

// recordResult notes what a worker made of an event, and returns what this side stores of the entry.
func (i *inbox) recordResult(r worker.Result, o worker.Outcome) stream.Version {
	entry := r.Event.Key
	switch {
	case entry.Collection == stream.Commands && r.Refusal == nil && r.Event.Verb == stream.Apply:
		i.taken[entry] = operations.TakenOf(r.Event, o.UID)
		return r.Event.Version
	case entry.Collection == stream.Commands && r.Event.Verb == stream.Delete:
		delete(i.taken, entry)
		return stream.Version{}
	case entry.Collection == stream.Commands && o.Parsed != nil:
		return i.taken[entry].Stored(*o.Parsed)
	case r.Reply != nil:
		i.replies[entry] = *r.Reply
	case r.Implied:
		delete(i.replies, entry)
	}
	return r.Stored
}
