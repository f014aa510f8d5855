package link

import "github.com/argomesh/argomesh/stream"

// An object that the sink holds, and that was never desired since this process began, may
// be one that the caller's store is yet to show: the sink got it from an earlier process,
// or from one that lives beside this one, whose store was ahead. So its absence is no
// more than a question, until the caller has asked the API server itself. With
// Config.Verify the end of such an entry is not sent before Verified; Unfamiliar names it
// once the guard would let it go.

// Verified says that the API server itself was asked about the object behind an entry
// that Unfamiliar named, and that what is desired of it follows from the answer.
type Verified struct{ Key stream.EntryKey }

func (Verified) input() {}

// verifiable reports whether the entries of c exist by the word of their source, or show
// what does.
func verifiable(c stream.Collection) bool { return guarded(c) || c == stream.Children }

// doubt notes that the absence of an entry follows from nothing but that the store does
// not show it.
func (s *source) doubt(key stream.EntryKey, e *entry) {
	if s.verify && e.desired.Absent() && !e.held().Absent() {
		s.doubted[key] = false
	}
}

// doubts reports whether the absence of an entry is doubted, and has it asked for.
func (l *Link) doubts(s *source, key stream.EntryKey) bool {
	asked, doubted := s.doubted[key]
	if doubted && !asked {
		s.doubted[key] = true
		l.unfamiliar = append(l.unfamiliar, key)
	}
	return doubted
}

// Unfamiliar returns entries whose absence is doubted, each once: the caller answers each
// with Verified, whatever becomes of the connection meanwhile.
func (l *Link) Unfamiliar() []stream.EntryKey {
	keys := l.unfamiliar
	l.unfamiliar = nil
	return keys
}

// verified lets an entry go, if it is still missing.
func (l *Link) verified(key stream.EntryKey) {
	s := l.source(key.Collection)
	if s == nil {
		return
	}
	delete(s.doubted, key)
	if e := s.entries.get(key); e != nil {
		e.withheld = false
		s.settle(key, e)
	}
}
