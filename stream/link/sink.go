package link

import (
	"slices"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// sink is the receiving end of one collection: what our store holds of it.
type sink struct {
	collection stream.Collection
	stored     table[stream.Version]
	tally      tally
	// dropped are the paths that our store does not keep of what is held.
	dropped map[stream.EntryKey][]string
	// asked is what the peer asked for and did not yet get; nil when nothing. lists
	// is when it may get it.
	asked *stream.Buckets
	lists time.Time

	// absences is how many entries the peer last said that it has not, and told
	// that it said so on this connection.
	absences      uint64
	inventoryTold bool
	// waiting are deletions that wait for a check, refused those that were held
	// back, and accepted those that may go all the same, on any connection for which the
	// break of the history is acceptedFor, empty for none. passed are those of them that
	// the peer asked for on this one: of the others it may have the object again.
	waiting     map[stream.EntryKey]waiting
	refused     map[stream.EntryKey]bool
	accepted    map[stream.EntryKey]bool
	acceptedFor string
	passed      map[stream.EntryKey]bool
	// naming says that the peer may still ask for more of what it lacks: it did so of late.
	// firstNamed and lastNamed are when the first and the last of refused were held back.
	naming                bool
	firstNamed, lastNamed time.Time
	peaks                 peaks
}

func newSink(c stream.Collection) *sink {
	return &sink{
		collection: c,
		stored:     newTable[stream.Version](c),
		dropped:    map[stream.EntryKey][]string{},
		waiting:    map[stream.EntryKey]waiting{},
		refused:    map[stream.EntryKey]bool{},
		accepted:   map[stream.EntryKey]bool{},
		passed:     map[stream.EntryKey]bool{},
	}
}

// disconnect forgets what was said on the connection.
func (s *sink) disconnect() {
	s.absences, s.inventoryTold = 0, false
	s.asked, s.lists = nil, time.Time{}
	clear(s.waiting)
	clear(s.refused)
	clear(s.passed)
}

// set reports whether it changed something.
func (s *sink) set(key stream.EntryKey, v stream.Version) bool {
	old := s.stored.get(key)
	if old == v {
		return false
	}
	s.tally.remove(key, old)
	s.tally.add(key, v)
	if v.Absent() {
		s.stored.remove(key)
		s.answered(key)
	} else {
		s.stored.set(key, v)
	}
	return true
}

// list returns the answer to what the peer asked for, once its time has come. What
// is held was reported before, so the caller keeps that order.
func (s *sink) list(now time.Time) []stream.Message {
	if s.asked == nil || now.Before(s.lists) {
		return nil
	}
	asked := *s.asked
	s.asked, s.lists = nil, now.Add(listPause)
	return s.inventory(asked)
}

// inventory answers the source's sums with all that is held in the buckets that
// differ.
func (s *sink) inventory(theirs stream.Buckets) []stream.Message {
	inv := stream.Inventory{Collection: s.collection, Buckets: differing(sumsOf(s.stored.all()), &theirs.Sums)}
	var keys []stream.EntryKey
	if !inv.Buckets.Empty() {
		for key := range s.stored.all() {
			if inv.Buckets.Has(bucketOf(key)) {
				keys = append(keys, key)
			}
		}
	}
	slices.SortFunc(keys, byName)
	var out []stream.Message
	for _, key := range keys {
		if len(inv.Entries) == stream.MaxEntries {
			inv.More = true
			out = append(out, inv)
			inv.Entries, inv.More = nil, false
		}
		inv.Entries = append(inv.Entries, stream.Entry{Namespace: key.Namespace, Name: key.Name, Version: s.stored.get(key)})
	}
	return append(out, inv)
}

// withholds reports whether the sink holds back deletions that someone can accept. A peer
// asks for one after the other, and who accepts the first of them alone would have to
// accept again and again; so it is no set before the peer has asked for as many as it
// said that it lacks, or has asked for no other for a while.
func (s *sink) withholds() bool {
	if len(s.refused) == 0 {
		return false
	}
	named := s.inventoryTold && uint64(len(s.refused)+len(s.passed)) >= s.absences
	return named || !s.naming
}

// waiting is a deletion that waits for a check.
type waiting struct {
	event stream.Event
	asked bool
}

func (s *sink) waitingKeys() []stream.EntryKey {
	keys := make([]stream.EntryKey, 0, len(s.waiting))
	for key := range s.waiting {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, byName)
	return keys
}

// answered forgets what was held back of an entry that is there again, or gone.
func (s *sink) answered(key stream.EntryKey) {
	delete(s.refused, key)
	delete(s.accepted, key)
	delete(s.passed, key)
}

func (s *sink) forgetAccepted() {
	clear(s.accepted)
	clear(s.passed)
}
