package link

import "github.com/argomesh/argomesh/stream"

// recordSeen records a deletion that matters: one that the sink may not know.
func (gd *guard) recordSeen(in Seen) {
	s := gd.ends.source(in.Key.Collection)
	if s == nil || !gd.on || !in.Key.Collection.Desired() || gd.check.history == historyBroken {
		return
	}
	e := s.entries.get(in.Key)
	switch {
	case e == nil && s.phase == phaseReady:
		return // nothing is held of it
	case e != nil && !e.desired.Absent() && e.desired.SourceUID != in.UID:
		return // another one is there
	}
	before := s.seen[in.Key]
	s.seen[in.Key] = deletion{uid: in.UID, revision: in.Revision, counted: before.counted && before.uid == in.UID}
	s.gone.fresh = s.gone.fresh || e != nil && e.missing()
}

// forgetSeen makes absences of what was seen.
func (gd *guard) forgetSeen() {
	for _, s := range gd.ends.sources {
		clear(s.seen)
	}
}

// fact returns the deletion of what the sink holds of a missing entry, if it was seen
// and the peer can be told so.
func (gd *guard) fact(s *source, key stream.EntryKey, e *entry) (deletion, bool) {
	d, seen := s.seen[key]
	return d, seen && gd.conn.checks && e.missing() && e.stored().SourceUID == d.uid
}
