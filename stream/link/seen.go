package link

import "github.com/argomesh/argomesh/stream"

// Seen says that the object behind an entry of a source of ours was seen to be deleted,
// and that nothing has taken its place. That is a fact and no absence: the guard does
// not count it. It still goes only once a Judged has said, after that and on this
// connection, that the history continues, only to a peer that checks what a Delete
// names (Connected.SeenDeletes), and only while the sink is known to hold a version of
// that UID. It outlives connections, and ends when a history does not continue.
//
// The caller bounds how many there are: see SeenDeletes. It has no effect where there
// is no guard.
type Seen struct {
	Key      stream.EntryKey
	UID      string
	Revision uint64 // of the deletion
}

func (Seen) input() {}

// deletion is one that was seen.
type deletion struct {
	uid      string
	revision uint64
	counted  bool // has left the memory of sizes
}

// see notes a deletion that matters: one that the sink may not know.
func (l *Link) see(in Seen) {
	s := l.source(in.Key.Collection)
	if s == nil || !l.cfg.Guard || !guarded(in.Key.Collection) || l.judgement.broken != "" {
		return
	}
	e := s.entries.get(in.Key)
	switch {
	case e == nil && s.ready:
		return // nothing is held of it
	case e != nil && !e.desired.Absent() && e.desired.SourceUID != in.UID:
		return // another one is there
	}
	before := s.seen[in.Key]
	s.seen[in.Key] = deletion{uid: in.UID, revision: in.Revision, counted: before.counted && before.uid == in.UID}
	s.fresh = s.fresh || e != nil && e.missing()
}

// unsee makes absences of what was seen.
func (l *Link) unsee() {
	for _, s := range l.sources {
		clear(s.seen)
	}
}

// fact returns the deletion of what the sink holds of a missing entry, if it was seen
// and the peer can be told so.
func (l *Link) fact(s *source, key stream.EntryKey, e *entry) (deletion, bool) {
	d, seen := s.seen[key]
	return d, seen && l.checks && e.missing() && e.held().SourceUID == d.uid
}

// count takes a fact out of the memory of sizes, once. Not before it is one: to a peer that
// cannot be told so it is an absence, which counts.
func (s *source) count(key stream.EntryKey, d deletion) {
	if !d.counted {
		d.counted = true
		s.seen[key] = d
		s.peaks.seen()
	}
}

// MayHold reports whether the peer may hold something of an entry of a source of ours.
func (l *Link) MayHold(key stream.EntryKey) bool {
	s := l.source(key.Collection)
	if s == nil || !s.ready {
		return s != nil
	}
	e := s.entries.get(key)
	return e != nil && (!e.held().Absent() || e.inFlight() != "")
}

// SeenDeletes is how many deletions that were seen are not yet over.
func (l *Link) SeenDeletes() int {
	n := 0
	for _, s := range l.sources {
		n += len(s.seen)
	}
	return n
}

// came notes that the sink has come to hold an entry.
func (p peaks) came() {
	for i := range p {
		p[i].came++
	}
}

// seen takes one out that was seen to be deleted: first of all those that came later,
// since by the number alone it may be one of them.
func (p peaks) seen() {
	for i := range p {
		if p[i].came > 0 {
			p[i].came--
		} else {
			p[i].size = max(p[i].size-1, 0)
		}
	}
}
