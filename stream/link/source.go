package link

import (
	"cmp"
	"slices"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// source is the sending end of one collection.
type source struct {
	collection stream.Collection
	entries    table[*entry]
	desired    tally
	believed   tally
	dirty      queue
	parked     schedule
	// known says that believed came from the sink since this process began.
	known bool
	// heard says that the sink sent its digest on this connection.
	heard bool
	// ready says that believed is the sink's state on this connection.
	ready bool
	// repairing says that Buckets were sent and the Inventory is not yet complete.
	repairing bool
	// listing says that the first part of that Inventory has come.
	listing bool
	paused  bool
	// leavingOnly says that only entries that announce their end are sent. The
	// others leave the queue unsent.
	leavingOnly bool
	// missing are the entries that the sink holds and we have not, leaving those that
	// announce their end, which is not yet known, and flying those that are on their
	// way while we have them no more.
	missing map[stream.EntryKey]*entry
	leaving map[stream.EntryKey]*entry
	flying  map[stream.EntryKey]*entry
	// fresh says that something is missing that no judgement was asked for, many
	// that it is too much to go.
	fresh bool
	many  bool
	peaks peaks
	// repairs counts how often the sink turned out to hold something else than it had
	// said, without a pause longer than repairMemory; repaired is the last time.
	repairs  int
	repaired time.Time
}

// entry is one entry of a source. There are as many as there are objects, nearly
// all of them at rest: what is known only of the others is in pending.
type entry struct {
	desired stream.Version
	pending *pending // nil for one at rest
	bucket  uint8
	// lacking says that the sink holds nothing of it: see held.
	lacking bool
	leaving bool
	queued  bool
	// asked says that a judgement was asked for since the entry is missing, free
	// that it may go on this connection, accepted that it may on any, and withheld
	// that the guard took it out of the queue.
	asked, free, accepted, withheld bool
}

// pending is what is known of an entry that is under way, or was not taken as it
// was meant. The zero value says nothing.
type pending struct {
	// other is what the sink said it holds, if that is neither nothing nor the
	// desired version.
	other stream.Version
	event string // id of the event in flight; empty when there is none
	sent  stream.Version
	bytes int
	// gone is the leaving version that the sink answered by holding nothing.
	gone    stream.Version
	refusal *stream.Refusal
	// attempts counts the answers in a row after which the sink still did not hold
	// the desired version.
	attempts int
	retry    time.Time // when a parked entry is due; zero when not parked
	// undoings counts how often the sink lost what it held, without a pause longer
	// than undoneMemory; undoneAt is the last time.
	undoings int
	undoneAt time.Time
}

// pend returns what is pending of e, for a change.
func (e *entry) pend() *pending {
	if e.pending == nil {
		e.pending = new(pending)
	}
	return e.pending
}

// rest forgets what is pending of e if that says nothing.
func (e *entry) rest() {
	if e.pending != nil && *e.pending == (pending{}) {
		e.pending = nil
	}
}

// held is what the sink said it holds: nothing, something else than is desired, or,
// as nearly always, what is desired, of which no second copy is kept.
func (e *entry) held() stream.Version {
	switch {
	case e.lacking:
		return stream.Version{}
	case e.pending != nil && !e.pending.other.Absent():
		return e.pending.other
	}
	return e.desired
}

// hold notes what the sink said it holds.
func (e *entry) hold(v stream.Version) {
	e.lacking = v.Absent()
	if v == e.desired {
		v = stream.Version{}
	}
	if e.pending != nil || !v.Absent() {
		e.pend().other = v
	}
}

// desire changes what the sink should hold, and not what it does.
func (e *entry) desire(v stream.Version) {
	held := e.held()
	e.desired = v
	e.hold(held)
}

// inFlight is the id of the event in flight; empty when there is none.
func (e *entry) inFlight() string {
	if e.pending == nil {
		return ""
	}
	return e.pending.event
}

// gone is the leaving version that the sink answered by holding nothing.
func (e *entry) gone() stream.Version {
	if e.pending == nil {
		return stream.Version{}
	}
	return e.pending.gone
}

// refusal is the sink's answer to the desired version; nil when it did not refuse.
func (e *entry) refusal() *stream.Refusal {
	if e.pending == nil {
		return nil
	}
	return e.pending.refusal
}

// parked is when e is due; zero when it is not parked.
func (e *entry) parked() time.Time {
	if e.pending == nil {
		return time.Time{}
	}
	return e.pending.retry
}

// relieve lets e begin anew, without the attempts so far.
func (e *entry) relieve() {
	if p := e.pending; p != nil {
		p.attempts, p.retry, p.refusal = 0, time.Time{}, nil
	}
}

// land takes the event of e out of flight.
func (e *entry) land() {
	if p := e.pending; p != nil {
		p.event, p.sent, p.bytes = "", stream.Version{}, 0
	}
}

func newSource(c stream.Collection) *source {
	return &source{collection: c, entries: newTable[*entry](c), missing: map[stream.EntryKey]*entry{}, leaving: map[stream.EntryKey]*entry{}, flying: map[stream.EntryKey]*entry{}}
}

// satisfied reports whether the sink holds what it should.
func (e *entry) satisfied() bool {
	held := e.held()
	if e.leaving && held.Absent() {
		return e.gone() == e.desired
	}
	return held == e.desired
}

func (s *source) entry(key stream.EntryKey) *entry {
	e := s.entries.get(key)
	if e == nil {
		e = &entry{bucket: bucketOf(key)}
		s.entries.set(key, e)
	}
	return e
}

// desire records the version that should be held, and queues what differs.
func (s *source) desire(key stream.EntryKey, v stream.Version, leaving bool) {
	e := s.entry(key)
	if e.desired != v {
		s.desired.remove(key, e.desired)
		s.desired.add(key, v)
		e.desire(v)
		e.relieve()
		e.withheld = false
	}
	e.leaving = leaving
	s.weigh(key, e)
	s.settle(key, e)
}

// believe records what the sink holds.
func (s *source) believe(key stream.EntryKey, e *entry, v stream.Version) {
	s.believed.remove(key, e.held())
	s.believed.add(key, v)
	e.hold(v)
	if e.pending != nil && !v.Absent() {
		e.pending.gone = stream.Version{}
	}
	s.weigh(key, e)
}

// settle queues an entry that must be sent and forgets one that is no more.
func (s *source) settle(key stream.EntryKey, e *entry) {
	switch {
	case e.inFlight() != "":
		// The answer decides.
	case !e.satisfied():
		if !e.queued && !e.withheld && e.parked().IsZero() {
			e.queued = true
			s.dirty.push(key)
		}
	default:
		e.relieve()
		e.rest()
		if e.desired.Absent() {
			s.entries.remove(key) // a key left in dirty or parked is skipped there
		}
	}
}

func (s *source) pause(in Paused) {
	again := s.leavingOnly && !in.LeavingOnly
	s.paused, s.leavingOnly = in.Paused, in.LeavingOnly
	if again {
		s.settleAll(func(e *entry) bool { return !e.satisfied() })
	}
}

// settleAll settles the entries that which selects, by name: what the link does
// follows from its inputs alone.
func (s *source) settleAll(which func(*entry) bool) {
	var keys []stream.EntryKey
	for key, e := range s.entries.all() {
		if which(e) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, byName)
	for _, key := range keys {
		s.settle(key, s.entries.get(key))
	}
}

// byName orders the keys of one collection.
func byName(a, b stream.EntryKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// pop returns the oldest dirty entry, out of the queue but still marked as
// queued; nil when there is none.
func (s *source) pop() (stream.EntryKey, *entry) {
	for {
		key, ok := s.dirty.pop()
		if !ok {
			return stream.EntryKey{}, nil
		}
		if e := s.entries.get(key); e != nil && e.queued {
			// load is asked even for an entry that is satisfied by now: it may be newer.
			return key, e
		}
	}
}

func (s *source) sent(e *entry, event stream.Event) {
	p := e.pend()
	p.event, p.sent, p.bytes = event.ID, event.Version, len(event.Data)
	s.weigh(event.Key, e)
}

// disconnect forgets what is in flight; the next digest tells what became of it.
func (s *source) disconnect() {
	s.heard, s.ready, s.repairing, s.listing = false, false, false, false
	s.fresh, s.many = len(s.missing) > 0, false
	clear(s.flying)
	s.settleAll(func(e *entry) bool {
		lost := e.inFlight() != "" || e.withheld
		e.land()
		e.asked, e.free, e.withheld = false, false, false
		return lost
	})
}

// compare takes the sink's digest and returns what must be asked.
func (s *source) compare(now time.Time, d stream.Digest) []stream.Message {
	switch {
	case s.repairing:
		return nil
	case s.believed.equals(d):
		s.ready, s.known = true, true
		return nil
	case s.desired.equals(d):
		s.claim()
		s.ready, s.known = true, true
		return nil
	}
	if s.ready && s.tired(now) {
		return nil
	}
	if !s.known {
		// Most entries will be as they should be; say so and be corrected.
		s.claim()
	}
	s.ready, s.repairing, s.listing = false, true, false
	return []stream.Message{stream.Buckets{Collection: s.collection, Sums: *sumsOf(s.belief)}}
}

// belief yields what the sink is believed to hold.
func (s *source) belief(yield func(stream.EntryKey, stream.Version) bool) {
	for key, e := range s.entries.all() {
		if !yield(key, e.held()) {
			return
		}
	}
}

// tired reports whether a repair in the middle of a connection has to wait: a sink
// whose digest never is that of what it lists would be asked without end. It notes
// the repair that need not.
func (s *source) tired(now time.Time) bool {
	if now.Sub(s.repaired) > repairMemory {
		s.repairs = 0
	}
	if s.repairs >= repairFree && now.Sub(s.repaired) < repairPause {
		return true
	}
	s.repairs, s.repaired = s.repairs+1, now
	return false
}

// claim believes that the sink holds what it should.
func (s *source) claim() {
	for key, e := range s.entries.all() {
		if e.held() != e.desired {
			s.believe(key, e, e.desired)
		}
		s.settle(key, e)
	}
}

// repair takes the sink's list of the buckets that differed. It returns a violation
// for a list of other buckets than it says, and for one without end.
func (s *source) repair(m stream.Inventory) stream.Violation {
	if !s.listing {
		s.listing = true
		for key, e := range s.entries.all() {
			if m.Buckets.Has(e.bucket) {
				s.believe(key, e, stream.Version{})
			}
		}
	}
	for _, held := range m.Entries {
		key := stream.EntryKey{Collection: s.collection, Namespace: held.Namespace, Name: held.Name}
		if !m.Buckets.Has(bucketOf(key)) {
			return stream.ViolationMalformed
		}
		s.believe(key, s.entry(key), held.Version)
		if len(s.missing) > maxMissing {
			return stream.ViolationLimit
		}
	}
	if m.More {
		return ""
	}
	s.ready, s.known, s.repairing, s.listing = true, true, false, false
	s.settleAll(func(e *entry) bool { return m.Buckets.Has(e.bucket) })
	return ""
}

// undone notes that somebody on the sink's side undid what was applied. That is
// mended at once, but somebody who does it again and again is given ever more time:
// two writers that fight must not be an endless loop.
func (s *source) undone(now time.Time, key stream.EntryKey, e *entry) {
	p := e.pend()
	if now.Sub(p.undoneAt) > undoneMemory {
		p.undoings = 0
	}
	p.undoings, p.undoneAt = p.undoings+1, now
	if p.undoings > undoneFree {
		p.attempts = p.undoings
		s.park(now, key, e)
	}
}

// answer takes one result. It returns what was settled and the bytes that left
// the window with it; nil for a report that answers nothing in flight.
func (s *source) answer(now time.Time, r stream.Result) (*Settled, int) {
	e := s.entry(r.Key)
	was := e.satisfied()
	s.believe(r.Key, e, r.Held)
	event := e.inFlight()
	if event == "" || r.Event != event {
		// Where nothing should be, nothing was applied that could be undone: the sink
		// may only be the first to know of a new object.
		if was && event == "" && !e.desired.Absent() && !e.satisfied() {
			s.undone(now, r.Key, e)
		}
		s.settle(r.Key, e)
		return nil, 0
	}
	p := e.pending
	bytes := p.bytes
	settled := &Settled{
		Key: r.Key, Sent: p.sent, Current: p.sent == e.desired, Held: r.Held, Refusal: r.Refusal,
	}
	e.land()
	s.weigh(r.Key, e)
	if settled.Current {
		p.refusal = r.Refusal
		if p.refusal == nil && e.leaving && r.Held.Absent() {
			p.gone = settled.Sent
			settled.Gone = true
			s.weigh(r.Key, e)
		}
		if !e.satisfied() {
			// Refused, or taken but not held, as when a second writer undoes it.
			s.park(now, r.Key, e)
		}
	}
	s.settle(r.Key, e)
	return settled, bytes
}
