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
			if s := l.ends.source(d.Collection); s != nil {
				l.out = append(l.out, s.compare(now, d)...)
			}
		}
		l.conn.stage = digested
	case stream.Heartbeat:
		l.guard.announced(m.Absences)
		for _, s := range l.ends.sources {
			s.dropped.finish()
		}
		for _, d := range m.Digests {
			if s := l.ends.source(d.Collection); s != nil && s.phase == phaseReady {
				l.out = append(l.out, s.compare(now, d)...)
			}
		}
	case stream.Buckets:
		switch s := l.ends.sink(m.Collection); {
		case s == nil:
			return []Action{violates(stream.ViolationDirection)}
		case s.asked != nil:
			// No one asks again before he has the answer. One that does not read it would
			// have us pile up answers.
			return []Action{violates(stream.ViolationOrder)}
		default:
			s.asked = &m
		}
	case stream.Inventory:
		s := l.ends.source(m.Collection)
		switch {
		case s == nil:
			return []Action{violates(stream.ViolationDirection)}
		case !s.phase.repairing():
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
	for results := range slices.Chunk(l.inbound.results, stream.MaxResults) {
		l.out = append(l.out, stream.Applied{Results: results})
	}
	l.inbound.results = nil
}

func (l *Link) apply(m stream.Batch) []Action {
	actions := make([]Action, 0, len(m.Events))
	l.guard.announced(m.Absences)
	for _, u := range m.Unsupported {
		if len(l.inbound.results) == maxUnsent {
			return append(actions, Disconnect{Cause: CauseStalled})
		}
		l.inbound.results = append(l.inbound.results, stream.Result{Event: u.ID, Refusal: &stream.Refusal{
			Kind: stream.RefusalUnsupported, Message: "this release does not know events of that type",
		}})
	}
	for _, e := range m.Events {
		s := l.ends.sink(e.Key.Collection)
		if s == nil {
			return append(actions, violates(stream.ViolationDirection))
		}
		if _, again := l.inbound.open[e.ID]; again {
			return append(actions, violates(stream.ViolationMalformed)) // its bounds count by id
		}
		l.inbound.open[e.ID] = len(e.Data)
		l.inbound.bytes += len(e.Data)
		if len(l.inbound.open) > maxOpen || l.inbound.bytes > maxOpenBytes {
			return append(actions, violates(stream.ViolationLimit))
		}
		if e.Verb == stream.Delete && e.Deleted == "" && e.Key.Collection.Desired() {
			// Of an older release, which does not say it.
			e.Deleted = s.stored.get(e.Key).SourceUID
		}
		answer, passes := l.guard.guardEvent(s, e)
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
			key, ok := l.window.flights[r.Event]
			if !ok {
				continue // answered already
			}
			r.Key = key
			s := l.ends.source(key.Collection)
			r.Held = s.entries.get(key).stored()
			r.Dropped, _ = s.dropped.get(key)
		}
		s := l.ends.source(r.Key.Collection)
		if s == nil {
			return append(actions, violates(stream.ViolationDirection))
		}
		actions = append(actions, s.shorten(r)...)
		settled, bytes := s.answer(now, r)
		if len(s.gone.missing) > maxMissing {
			return append(actions, violates(stream.ViolationLimit))
		}
		if settled != nil {
			delete(l.window.flights, r.Event)
			l.window.inFlight--
			l.window.bytes -= bytes
			actions = append(actions, *settled)
		}
	}
	return actions
}
