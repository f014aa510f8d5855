package link

import "github.com/argomesh/argomesh/stream"

// An object that the sink holds, and that was never desired since this process began, may
// be one that the caller's store is yet to show: the sink got it from an earlier process,
// or from one that lives beside this one, whose store was ahead. So its absence is no
// more than a question, until the caller has asked the API server itself. With
// Config.Verify the end of such an entry is not sent before Verified; Link.Unfamiliar names it
// once the guard would let it go.

// mustVerify reports whether the absence of an entry is yet to be verified, and queues it for
// Unfamiliar once.
func (gd *guard) mustVerify(s *source, key stream.EntryKey) bool {
	asked, doubted := s.unverified[key]
	if doubted && !asked {
		s.unverified[key] = true
		gd.unfamiliar = append(gd.unfamiliar, key)
	}
	return doubted
}

// drainUnfamiliar returns the entries whose absence the caller has to verify, each once. The caller
// answers each with Verified, even if the connection ends meanwhile.
func (gd *guard) drainUnfamiliar() []stream.EntryKey {
	keys := gd.unfamiliar
	gd.unfamiliar = nil
	return keys
}

// verified lets an entry go, if it is still missing.
func (gd *guard) verified(key stream.EntryKey) {
	s := gd.ends.source(key.Collection)
	if s == nil {
		return
	}
	delete(s.unverified, key)
	if e := s.entries.get(key); e != nil {
		e.withheld = false
		s.enqueue(key, e)
	}
}
