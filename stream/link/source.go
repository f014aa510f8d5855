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
	// calming has each time at which something that was changed back may be forgotten,
	// turned what has become contested since, or is no more.
	calming schedule
	turned  []stream.EntryKey
	// taken is what was refused and turned out to be held, without an answer that says so.
	taken []stream.EntryKey
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
	// announce their end, which is not yet known, flying those that are on their
	// way while we have them no more, and another those of which the sink holds another
	// object of that name.
	missing map[stream.EntryKey]*entry
	leaving map[stream.EntryKey]*entry
	flying  map[stream.EntryKey]*entry
	another map[stream.EntryKey]*entry
	// fresh says that something is missing that no judgement was asked for, many
	// that it is too much to go.
	fresh bool
	many  bool
	peaks peaks
	// endings are the entries that announce their end.
	endings endings
	// seen are the deletions of which Seen told, until the sink is known to hold nothing
	// of the object.
	seen map[stream.EntryKey]deletion
	// verify says that absences are doubted; doubted are those that are, each with whether
	// Unfamiliar has named it.
	verify  bool
	doubted map[stream.EntryKey]bool
	// dropped is what the sink does not keep of what it holds.
	dropped dropped
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
	// that it left the queue unsent: the guard holds it back, or it is unproven.
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
	// nowhere says that the sink took a version and holds nothing of it. A newer one
	// waits as well: the sink says when there is a place for it.
	nowhere bool
	// attempts counts the answers in a row after which the sink still did not hold
	// the desired version.
	attempts int
	retry    time.Time // when a parked entry is due; zero when not parked
	// undoings are those of somebody on the sink's side, undone says what he does, and
	// contested that he does it again and again.
	undoings  Undoings
	undone    string
	contested bool
	// retries counts what the sink asked for again for a reason of its own.
	retries Undoings
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
		p.attempts, p.retry, p.refusal, p.nowhere = 0, time.Time{}, nil, false
	}
}

// land takes the event of e out of flight.
func (e *entry) land() {
	if p := e.pending; p != nil {
		p.event, p.sent, p.bytes = "", stream.Version{}, 0
	}
}

func newSource(c stream.Collection, verify bool) *source {
	return &source{
		collection: c, verify: verify, doubted: map[stream.EntryKey]bool{}, entries: newTable[*entry](c), missing: map[stream.EntryKey]*entry{}, leaving: map[stream.EntryKey]*entry{},
		flying: map[stream.EntryKey]*entry{}, another: map[stream.EntryKey]*entry{}, dropped: newDropped(),
		seen: map[stream.EntryKey]deletion{},
	}
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
	if !v.Absent() {
		delete(s.seen, key) // there is one again
		delete(s.doubted, key)
	}
	if e.desired != v {
		before := e.desired
		s.desired.remove(key, before)
		s.desired.add(key, v)
		e.desire(v)
		if before.SourceUID != e.held().SourceUID {
			s.doubt(key, e) // what ended is not what the sink holds
		}
		if e.pending == nil || !e.pending.nowhere {
			e.relieve()
		}
		e.withheld = false
	}
	e.leaving = leaving
	s.weigh(key, e)
	s.settle(key, e)
}

// believe records what the sink holds.
func (s *source) believe(key stream.EntryKey, e *entry, v stream.Version) {
	if _, missing := s.missing[key]; missing && e.held().SourceUID != v.SourceUID {
		// What was allowed was the end of the other.
		e.asked, e.free, s.fresh = false, false, true
	}
	before := e.held().SourceUID
	s.believed.remove(key, e.held())
	s.believed.add(key, v)
	e.hold(v)
	if before != v.SourceUID {
		s.doubt(key, e)
	}
	if p := e.pending; p != nil && !v.Absent() {
		p.gone = stream.Version{}
		if p.nowhere {
			e.relieve() // there is a place for it now
		}
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
			s.enqueue(key)
		}
	default:
		if e.refusal() != nil {
			s.taken = append(s.taken, key)
		}
		e.relieve()
		e.rest()
		if e.desired.Absent() {
			if s.ready {
				delete(s.seen, key)
			}
			delete(s.doubted, key)
			s.entries.remove(key) // a key left in dirty or parked is skipped there
		}
	}
}

// resume queues an entry again that left the queue unsent.
func (s *source) resume(key stream.EntryKey) {
	if e := s.entries.get(key); e != nil && e.withheld {
		e.withheld = false
		s.settle(key, e)
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
	s.displace()
	s.dropped.disconnect()
	s.settleAll(func(e *entry) bool {
		lost := e.inFlight() != "" || e.withheld
		e.land()
		e.asked, e.free, e.withheld = false, false, false
		return lost
	})
}

// connect lets what was refused be sent at once: a new connection, often of a process
// with other rights or another policy, is the likeliest moment of a cure. What is
// refused again waits as long as it would have.
func (s *source) connect(now time.Time) {
	s.contend(now)
	s.settleAll(func(e *entry) bool {
		p := e.pending
		refused := p != nil && p.refusal != nil && !p.refusal.Kind.Passing() && !p.retry.IsZero()
		if refused {
			p.retry = time.Time{}
		}
		return refused
	})
}

// compare takes the sink's digest and returns what must be asked.
func (s *source) compare(now time.Time, d stream.Digest) []stream.Message {
	switch {
	case s.repairing:
		return nil
	case s.believed.equals(d):
		s.learned()
		return nil
	case s.desired.equals(d):
		s.claim()
		s.learned()
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

// learned notes that what the sink holds is known now.
func (s *source) learned() {
	s.ready, s.known = true, true
	s.tellEndings()
	for key := range s.seen {
		if e := s.entries.get(key); e == nil || !e.missing() && e.inFlight() == "" && e.desired.Absent() {
			delete(s.seen, key) // it is over
		}
	}
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
	s.repairing, s.listing = false, false
	s.learned()
	s.settleAll(func(e *entry) bool { return m.Buckets.Has(e.bucket) })
	return ""
}

// answer takes one result. It returns what was settled and the bytes that left
// the window with it; nil for a report that answers nothing in flight.
func (s *source) answer(now time.Time, r stream.Result) (*Settled, int) {
	e := s.entry(r.Key)
	was := e.satisfied()
	if e.held().Absent() && !r.Held.Absent() {
		s.peaks.came()
	}
	s.believe(r.Key, e, r.Held)
	event := e.inFlight()
	if event == "" && r.Retry {
		s.hasten(now, r.Key, e)
	}
	if event == "" || r.Event != event {
		// Where nothing should be, nothing was applied that could be undone: the sink
		// may only be the first to know of a new object.
		if was && event == "" && !e.desired.Absent() && !e.satisfied() && !s.retried(now, r, e) {
			s.undone(now, r.Key, e, r.Held)
		}
		s.settle(r.Key, e)
		return nil, 0
	}
	p := e.pending
	bytes := p.bytes
	settled := &Settled{
		Key: r.Key, Sent: p.sent, Current: p.sent == e.desired, Held: r.Held, Refusal: r.Refusal, Undone: r.Undone,
	}
	e.land()
	s.weigh(r.Key, e)
	if settled.Current {
		s.putBack(r.Key, e, r.Undone)
		p.refusal, p.nowhere = r.Refusal, r.Refusal == nil && r.Held.Absent() && !e.desired.Absent() && !e.leaving
		if p.refusal == nil && e.leaving && r.Held.Absent() {
			p.gone = settled.Sent
			settled.Gone = true
			s.weigh(r.Key, e)
		}
		if !e.satisfied() {
			// Refused, or taken but not held, as when a second writer undoes it at once.
			if p.refusal == nil && !p.nowhere && !e.leaving && !e.desired.Absent() && Contestable(s.collection) && !s.retried(now, r, e) {
				s.undone(now, r.Key, e, r.Held)
			}
			if p.retry.IsZero() {
				s.park(now, r.Key, e)
			}
		}
	}
	s.settle(r.Key, e)
	return settled, bytes
}
