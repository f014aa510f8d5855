package link

import (
	"cmp"
	"maps"

	"github.com/argomesh/argomesh/stream"
)

// Parked returns the entries of our sources that the peer refused, and those that are
// contested, with the reason.
func (l *Link) Parked() map[stream.EntryKey]stream.Refusal {
	parked := map[stream.EntryKey]stream.Refusal{}
	for _, s := range l.ends.sources {
		for key, e := range s.entries.all() {
			if r := cmp.Or(e.refusal(), e.contest(l.cfg.Side)); r != nil {
				parked[key] = *r
			}
		}
	}
	return parked
}

// Desired returns the version of an entry that our source was last told of.
func (l *Link) Desired(key stream.EntryKey) stream.Version {
	if s := l.ends.source(key.Collection); s != nil {
		if e := s.entries.get(key); e != nil {
			return e.desired
		}
	}
	return stream.Version{}
}

// Believed returns the version that the peer's sink is known to hold of an entry
// of our source; absent while there is no connection on which it was told.
func (l *Link) Believed(key stream.EntryKey) stream.Version {
	if s := l.ends.source(key.Collection); s != nil && s.phase == phaseReady {
		if e := s.entries.get(key); e != nil {
			return e.stored()
		}
	}
	return stream.Version{}
}

// Satisfied reports whether the peer's sink is known to hold what our source desires of
// an entry, or nothing where there is nothing; false while there is no connection on which
// it was told.
func (l *Link) Satisfied(key stream.EntryKey) bool {
	s := l.ends.source(key.Collection)
	if s == nil || s.phase != phaseReady {
		return false
	}
	e := s.entries.get(key)
	return e == nil || e.satisfied()
}

// Entries is the number of entries that a collection has here: desired ones of
// a source, held ones of a sink.
func (l *Link) Entries(c stream.Collection) int {
	if s := l.ends.source(c); s != nil {
		return int(s.desired.entries)
	}
	if s := l.ends.sink(c); s != nil {
		return s.stored.len()
	}
	return 0
}

// Agreed reports whether, as far as this side knows, the peer holds all that our
// sources desire, and no one there changes it back.
func (l *Link) Agreed() bool {
	for _, s := range l.ends.sources {
		if l.conn.stage != away && s.phase != phaseReady && !s.unsupported(l.conn) {
			return false
		}
		for _, e := range s.entries.values {
			if !e.satisfied() || e.contested() {
				return false
			}
		}
	}
	return true
}

// Lacks reports whether the peer's sink is known, on this connection, to hold nothing
// of an entry of ours.
func (l *Link) Lacks(key stream.EntryKey) bool {
	s := l.ends.source(key.Collection)
	if s == nil || s.phase != phaseReady {
		return false
	}
	e := s.entries.get(key)
	return e == nil || e.stored().Absent()
}

// MayStore reports whether the peer may hold something of an entry of a source of ours.
func (l *Link) MayStore(key stream.EntryKey) bool {
	s := l.ends.source(key.Collection)
	if s == nil || s.phase != phaseReady {
		return s != nil
	}
	e := s.entries.get(key)
	return e != nil && (!e.stored().Absent() || e.inFlight() != "")
}

// SeenDeletes is how many deletions that were seen are not yet over.
func (l *Link) SeenDeletes() int {
	n := 0
	for _, s := range l.ends.sources {
		n += len(s.seen)
	}
	return n
}

// Contest says of an entry of our source what someone on the peer's side changes back
// again and again; nil when no one does.
func (l *Link) Contest(key stream.EntryKey) *stream.Refusal {
	if s := l.ends.source(key.Collection); s != nil {
		if e := s.entries.get(key); e != nil {
			return e.contest(l.cfg.Side)
		}
	}
	return nil
}

// Dropped returns the paths that the peer's API server does not keep of what it holds
// of an entry of our source, as it said last. known is false while it has not said.
func (l *Link) Dropped(key stream.EntryKey) (paths []string, known bool) {
	if s := l.ends.source(key.Collection); s != nil {
		return s.dropped.get(key)
	}
	return nil, false
}

// AllDropped returns the paths that either side's API server does not keep, of all
// entries of which there are some.
func (l *Link) AllDropped() map[stream.EntryKey][]string {
	all := map[stream.EntryKey][]string{}
	for _, s := range l.ends.sources {
		maps.Copy(all, s.dropped.before)
		maps.Copy(all, s.dropped.reported)
	}
	for _, s := range l.ends.sinks {
		maps.Copy(all, s.dropped)
	}
	return all
}

// Withheld returns what is held back at present.
func (l *Link) Withheld() Withheld { return l.guard.withheld() }

// EndingNamespaces are the namespaces of the entries for whose ends the last CheckHistory asked, in
// order.
func (l *Link) EndingNamespaces() []string { return l.guard.endingNamespaces() }

// Ending reports whether an entry of ours announces an end that the peer is not known
// to have been told of, and that no one accepted.
func (l *Link) Ending() bool { return l.guard.ending() }

// Unfamiliar returns the entries whose absence the caller has to verify, each once. The caller
// answers each with Verified, even if the connection ends meanwhile.
func (l *Link) Unfamiliar() []stream.EntryKey { return l.guard.drainUnfamiliar() }
