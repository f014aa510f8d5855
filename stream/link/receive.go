package link

import (
	"slices"
	"time"

	"github.com/argomesh/argomesh/stream"
)

func (l *Link) receive(now time.Time, m stream.Message) []Action {
	switch m := m.(type) {
	case stream.Digests:
		for _, d := range m.Digests {
			if s := l.source(d.Collection); s != nil {
				s.heard = true
				l.out = append(l.out, s.compare(now, d)...)
			}
		}
		l.digested = true
	case stream.Heartbeat:
		l.announced(m.Absences)
		for _, s := range l.sources {
			s.dropped.finish()
		}
		for _, d := range m.Digests {
			if s := l.source(d.Collection); s != nil && s.ready {
				l.out = append(l.out, s.compare(now, d)...)
			}
		}
	case stream.Buckets:
		switch s := l.sink(m.Collection); {
		case s == nil:
			return []Action{violates(stream.ViolationDirection)}
		case s.asked != nil:
			// Nobody asks again before he has the answer. One that does not read it would
			// have us pile up answers.
			return []Action{violates(stream.ViolationOrder)}
		default:
			s.asked = &m
		}
	case stream.Inventory:
		s := l.source(m.Collection)
		switch {
		case s == nil:
			return []Action{violates(stream.ViolationDirection)}
		case !s.repairing:
			return []Action{violates(stream.ViolationOrder)}
		}
		if v := s.repair(m); v != "" {
			return []Action{violates(v)}
		}
	case stream.Batch:
		return l.apply(m)
	case stream.Applied:
		return l.applied(now, m)
	case stream.Goodbye:
		return []Action{Disconnect{Cause: CauseGoodbye}}
	}
	return nil
}

func (l *Link) flushResults() {
	for results := range slices.Chunk(l.results, stream.MaxResults) {
		l.out = append(l.out, stream.Applied{Results: results})
	}
	l.results = nil
}

func (l *Link) apply(m stream.Batch) []Action {
	actions := make([]Action, 0, len(m.Events))
	l.announced(m.Absences)
	for _, u := range m.Unsupported {
		if len(l.results) == maxUnsent {
			return append(actions, Disconnect{Cause: CauseStalled})
		}
		l.results = append(l.results, stream.Result{Event: u.ID, Refusal: &stream.Refusal{
			Kind: stream.RefusalUnsupported, Message: "this release does not know events of that type",
		}})
	}
	for _, e := range m.Events {
		s := l.sink(e.Key.Collection)
		if s == nil {
			return append(actions, violates(stream.ViolationDirection))
		}
		if _, again := l.open[e.ID]; again {
			return append(actions, violates(stream.ViolationMalformed)) // its bounds count by id
		}
		l.open[e.ID] = len(e.Data)
		l.openBytes += len(e.Data)
		if len(l.open) > maxOpen || l.openBytes > maxOpenBytes {
			return append(actions, violates(stream.ViolationLimit))
		}
		if e.Verb == stream.Delete && e.Deleted == "" && guarded(e.Key.Collection) {
			// Of an older release, which does not say it.
			e.Deleted = s.held.get(e.Key).SourceUID
		}
		answer, passes := l.guardEvent(s, e)
		actions = append(actions, answer...)
		if passes {
			actions = append(actions, Apply{Event: e})
		}
	}
	return actions
}

func (l *Link) applied(now time.Time, m stream.Applied) []Action {
	var actions []Action
	for _, r := range m.Results {
		if r.Key == (stream.EntryKey{}) {
			key, ok := l.flights[r.Event]
			if !ok {
				continue // answered already
			}
			r.Key = key
			s := l.source(key.Collection)
			r.Held = s.entries.get(key).held()
			r.Dropped, _ = s.dropped.get(key)
		}
		s := l.source(r.Key.Collection)
		if s == nil {
			return append(actions, violates(stream.ViolationDirection))
		}
		actions = append(actions, s.shorten(r)...)
		settled, bytes := s.answer(now, r)
		if len(s.missing) > maxMissing {
			return append(actions, violates(stream.ViolationLimit))
		}
		if settled != nil {
			delete(l.flights, r.Event)
			l.inFlight--
			l.bytes -= bytes
			actions = append(actions, *settled)
		}
	}
	return actions
}

func (l *Link) hold(s *sink, in Held) []Action {
	if size, ok := l.open[in.Event]; ok {
		l.openBytes -= size
		delete(l.open, in.Event)
	}
	if in.Version.Absent() {
		in.Dropped = nil
	}
	changed := s.set(in.Key, l.sharing(in.Key, in.Version))
	changed = s.drop(in.Key, in.Dropped) || changed
	if l.connected && (changed || in.Event != "") {
		if len(l.results) == maxUnsent {
			return []Action{Disconnect{Cause: CauseStalled}} // the next digest tells it all
		}
		l.results = append(l.results, stream.Result{
			Key: in.Key, Event: in.Event, Held: in.Version, Refusal: in.Refusal,
			Undone: in.Undone, Dropped: in.Dropped, Retry: in.Retry,
		})
	}
	return nil
}
