package link

import (
	"cmp"
	"container/heap"
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
	agenda     agenda
	// contestChanges is what has become contested, or is no more.
	contestChanges []stream.EntryKey
	// refusalsEnded is what was refused and turned out to be held, without an answer that says so.
	refusalsEnded []stream.EntryKey
	// known says that believed came from the sink since this process began.
	known bool
	phase phase
	// waits is what is not sent. With PauseChanges it leaves the queue unsent.
	waits Pause
	gone  absences
	// endings are the entries that announce their end.
	endings endings
	// seen are the deletions of which Seen told, until the sink is known to hold nothing
	// of the object.
	seen map[stream.EntryKey]deletion
	// verify is true while absences must be verified; unverified holds those entries, each with
	// whether Unfamiliar has named it.
	verify     bool
	unverified map[stream.EntryKey]bool
	// dropped is what the sink does not keep of what it holds.
	dropped dropped
	repairs repairs
}

// phase is what is known on this connection of what the sink holds.
type phase uint8

const (
	phaseUnknown phase = iota // the sink has sent no digest
	phaseAsked                // Buckets were sent, and no part of the Inventory has come
	phaseListed               // the first part of the Inventory has come, and not the last
	phaseReady                // believed is the state of the sink
)

// repairing reports whether an Inventory is under way.
func (p phase) repairing() bool { return p == phaseAsked || p == phaseListed }

// absences are the entries of which source and sink do not have the same object.
type absences struct {
	// missing are the entries that the sink holds and we have not, leaving those that
	// announce their end, which is not yet known, flying those that are on their
	// way while we have them no more, and another those of which the sink holds another
	// object of that name.
	missing map[stream.EntryKey]*entry
	leaving map[stream.EntryKey]*entry
	flying  map[stream.EntryKey]*entry
	another map[stream.EntryKey]*entry
	// fresh says that something is missing that no check was asked for, many
	// that it is too much to go.
	fresh bool
	many  bool
	peaks peaks
}

// repairs counts how often the sink turned out to hold something else than it had
// said, without a pause longer than repairWindow.
type repairs struct {
	count int
	last  time.Time
}

// throttled reports whether a repair in the middle of a connection has to wait: a sink
// whose digest never is that of what it lists would be asked without end. It notes
// the repair that need not.
func (r *repairs) throttled(now time.Time) bool {
	if now.Sub(r.last) > repairWindow {
		r.count = 0
	}
	if r.count >= repairFree && now.Sub(r.last) < repairPause {
		return true
	}
	r.count, r.last = r.count+1, now
	return false
}

func newSource(c stream.Collection, verify bool) *source {
	entries := newTable[*entry](c)
	return &source{
		collection: c, verify: verify, unverified: map[stream.EntryKey]bool{}, entries: entries,
		agenda: agenda{entries: entries},
		gone: absences{
			missing: map[stream.EntryKey]*entry{}, leaving: map[stream.EntryKey]*entry{},
			flying: map[stream.EntryKey]*entry{}, another: map[stream.EntryKey]*entry{},
		},
		endings: endings{all: map[stream.EntryKey]*ending{}}, dropped: newDropped(), seen: map[stream.EntryKey]deletion{},
	}
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
		delete(s.unverified, key)
	}
	if e.desired != v {
		before := e.desired
		s.desired.remove(key, before)
		s.desired.add(key, v)
		e.desire(v)
		if before.SourceUID != e.stored().SourceUID {
			s.noteUnverified(key, e) // what ended is not what the sink holds
		}
		if e.pending == nil || !e.pending.notStored {
			e.resetBackoff()
		}
		e.withheld = false
	}
	e.leaving = leaving
	s.updateSets(key, e)
	s.enqueue(key, e)
}

// believe records what the sink holds.
func (s *source) believe(key stream.EntryKey, e *entry, v stream.Version) {
	if _, missing := s.gone.missing[key]; missing && e.stored().SourceUID != v.SourceUID {
		// What was allowed was the end of the other.
		e.resetClearance()
		s.gone.fresh = true
	}
	before := e.stored().SourceUID
	s.believed.remove(key, e.stored())
	s.believed.add(key, v)
	e.setStored(v)
	if before != v.SourceUID {
		s.noteUnverified(key, e)
	}
	if p := e.pending; p != nil && !v.Absent() {
		p.gone = stream.Version{}
		if p.notStored {
			e.resetBackoff() // it can be stored now
		}
	}
	s.updateSets(key, e)
}

// enqueue queues an entry that must be sent and forgets one that is no more.
func (s *source) enqueue(key stream.EntryKey, e *entry) {
	switch {
	case e.inFlight() != "":
		// The answer decides.
	case !e.satisfied():
		if !e.queued && !e.withheld && e.parked().IsZero() {
			e.queued = true
			s.agenda.enqueue(key)
		}
	default:
		if e.refusal() != nil {
			s.refusalsEnded = append(s.refusalsEnded, key)
		}
		e.resetBackoff()
		e.dropPending()
		if e.desired.Absent() {
			if s.phase == phaseReady {
				delete(s.seen, key)
			}
			delete(s.unverified, key)
			s.entries.remove(key) // a key left in dirty or parked is skipped there
		}
	}
}

// resume queues an entry again that left the queue unsent.
func (s *source) resume(key stream.EntryKey) {
	if e := s.entries.get(key); e != nil && e.withheld {
		e.withheld = false
		s.enqueue(key, e)
	}
}

func (s *source) pause(in Paused) {
	was := s.waits
	s.waits = in.Waits
	if was == PauseChanges && s.waits != PauseChanges {
		s.enqueueAll(func(e *entry) bool { return !e.satisfied() })
	}
}

// enqueueAll queues the entries that which selects, by name: what the link does
// follows from its inputs alone.
func (s *source) enqueueAll(which func(*entry) bool) {
	var keys []stream.EntryKey
	for key, e := range s.entries.all() {
		if which(e) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, byName)
	for _, key := range keys {
		s.enqueue(key, s.entries.get(key))
	}
}

// byName orders the keys of one collection.
func byName(a, b stream.EntryKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func (s *source) sent(e *entry, event stream.Event) {
	p := e.ensurePending()
	p.event, p.sent, p.bytes = event.ID, event.Version, len(event.Data)
	s.updateSets(event.Key, e)
}

// disconnect forgets what is in flight; the next digest tells what became of it.
func (s *source) disconnect() {
	s.phase = phaseUnknown
	s.gone.fresh, s.gone.many = len(s.gone.missing) > 0, false
	clear(s.gone.flying)
	s.endings.resetChecks()
	s.dropped.disconnect()
	s.enqueueAll(func(e *entry) bool {
		lost := e.inFlight() != "" || e.withheld
		e.clearInFlight()
		e.resetClearance()
		e.withheld = false
		return lost
	})
}

// connect lets what was refused be sent at once: a new connection, often of a process
// with other rights or another policy, is the likeliest moment of a cure. What is
// refused again waits as long as it would have.
func (s *source) connect(now time.Time) {
	s.resumeContests(now)
	s.enqueueAll(func(e *entry) bool {
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
	case s.phase.repairing():
		return nil
	case s.believed.equals(d):
		s.learned()
		return nil
	case s.desired.equals(d):
		s.assumeInSync()
		s.learned()
		return nil
	}
	if s.phase == phaseReady && s.repairs.throttled(now) {
		return nil
	}
	if !s.known {
		// Most entries will be as they should be; say so and be corrected.
		s.assumeInSync()
	}
	s.phase = phaseAsked
	return []stream.Message{stream.Buckets{Collection: s.collection, Sums: *sumsOf(s.belief)}}
}

// learned notes that what the sink holds is known now.
func (s *source) learned() {
	s.phase, s.known = phaseReady, true
	s.endings.noteKnown(s.entries)
	for key := range s.seen {
		if e := s.entries.get(key); e == nil || !e.missing() && e.inFlight() == "" && e.desired.Absent() {
			delete(s.seen, key) // it is over
		}
	}
}

// belief yields what the sink is believed to hold.
func (s *source) belief(yield func(stream.EntryKey, stream.Version) bool) {
	for key, e := range s.entries.all() {
		if !yield(key, e.stored()) {
			return
		}
	}
}

// assumeInSync believes that the sink holds what it should.
func (s *source) assumeInSync() {
	for key, e := range s.entries.all() {
		if e.stored() != e.desired {
			s.believe(key, e, e.desired)
		}
		s.enqueue(key, e)
	}
}

// repair takes the sink's list of the buckets that differed. It returns a violation
// for a list of other buckets than it says, and for one without end.
func (s *source) repair(m stream.Inventory) stream.Violation {
	if s.phase == phaseAsked {
		s.phase = phaseListed
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
		if len(s.gone.missing) > maxMissing {
			return stream.ViolationLimit
		}
	}
	if m.More {
		return ""
	}
	s.learned()
	s.enqueueAll(func(e *entry) bool { return m.Buckets.Has(e.bucket) })
	return ""
}

// answer takes one result. It returns what was answered and the bytes that left
// the window with it; nil for a report that answers nothing in flight.
func (s *source) answer(now time.Time, r stream.Result) (*Answered, int) {
	e := s.entry(r.Key)
	was := e.satisfied()
	if e.stored().Absent() && !r.Held.Absent() {
		s.gone.peaks.addNew()
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
			s.noteReverted(now, r.Key, e, r.Held)
		}
		s.enqueue(r.Key, e)
		return nil, 0
	}
	p := e.pending
	bytes := p.bytes
	answered := &Answered{
		Key: r.Key, Sent: p.sent, Current: p.sent == e.desired, Stored: r.Held, Refusal: r.Refusal, Undone: r.Undone,
	}
	e.clearInFlight()
	s.updateSets(r.Key, e)
	if answered.Current {
		s.putBack(r.Key, e, r.Undone)
		p.refusal, p.notStored = r.Refusal, r.Refusal == nil && r.Held.Absent() && !e.desired.Absent() && !e.leaving
		if p.refusal == nil && e.leaving && r.Held.Absent() {
			p.gone = answered.Sent
			answered.Gone = true
			s.updateSets(r.Key, e)
		}
		if !e.satisfied() {
			// Refused, or taken but not held, as when a second writer undoes it at once.
			if p.refusal == nil && !p.notStored && !e.leaving && !e.desired.Absent() && Contestable(s.collection) &&
				!s.retried(now, r, e) {
				s.noteReverted(now, r.Key, e, r.Held)
			}
			if p.retry.IsZero() {
				s.agenda.park(now, r.Key, e)
			}
		}
	}
	s.enqueue(r.Key, e)
	return answered, bytes
}

// updateSets keeps the sets of what is missing, leaving, on its way and another, after a
// change of e.
func (s *source) updateSets(key stream.EntryKey, e *entry) {
	missing, leaving := e.missing(), e.leaving && !e.satisfied()
	came := mark(s.gone.missing, key, e, missing)
	s.gone.fresh = s.gone.fresh || came && missing
	if mark(s.gone.leaving, key, e, leaving) || came {
		// What was allowed was the other, or is done.
		e.clearance, e.withheld = notAsked, false
	}
	mark(s.gone.flying, key, e, e.inFlight() != "" && e.desired.Absent())
	s.endings.update(key, e, s.phase == phaseReady)
	mark(s.gone.another, key, e, e.another())
}

// mark puts e into a set or takes it out, and reports whether that is a change.
func mark(set map[stream.EntryKey]*entry, key stream.EntryKey, e *entry, in bool) bool {
	_, was := set[key]
	if in {
		set[key] = e
	} else {
		delete(set, key)
	}
	return in != was
}

// acceptEnding takes an entry's end, or its absence, at its word.
func (s *source) acceptEnding(key stream.EntryKey) {
	e := s.entries.get(key)
	if e == nil {
		return
	}
	if g := s.endings.all[key]; g != nil {
		g.accepted = true
	} else if e.missing() && !e.accepted() {
		e.clearance = accepted
		for i := range s.gone.peaks {
			s.gone.peaks[i].size-- // it counts as gone, lest it be remembered as lost when it is
		}
	}
	e.withheld = false
	s.enqueue(key, e)
}

// deletion is one that was seen.
type deletion struct {
	uid      string
	revision uint64
	counted  bool // has left the memory of sizes
}

// count takes a fact out of the memory of sizes, once. Not before it is one: to a peer that
// cannot be told so it is an absence, which counts.
func (s *source) count(key stream.EntryKey, d deletion) {
	if !d.counted {
		d.counted = true
		s.seen[key] = d
		s.gone.peaks.removeSeen()
	}
}

// noteUnverified notes that the absence of an entry follows from nothing but that the store does
// not show it.
func (s *source) noteUnverified(key stream.EntryKey, e *entry) {
	if s.verify && e.desired.Absent() && !e.stored().Absent() {
		s.unverified[key] = false
	}
}

// unpark queues what is due.
func (s *source) unpark(now time.Time) {
	for len(s.agenda.parked) > 0 && !s.agenda.parked[0].at.After(now) {
		d, _ := heap.Pop(&s.agenda.parked).(due)
		if e := s.entries.get(d.key); e != nil && e.parked().Equal(d.at) {
			e.pending.retry = time.Time{} // d.at is not zero
			s.enqueue(d.key, e)
		}
	}
}

// hasten lets an entry that was refused be due soon.
func (s *source) hasten(now time.Time, key stream.EntryKey, e *entry) {
	p := e.pending
	if p == nil || p.refusal == nil || p.retry.IsZero() {
		return
	}
	waits := p.retry
	p.attempts = 0
	s.agenda.park(now, key, e)
	if waits.Before(p.retry) {
		s.agenda.parkUntil(waits, key, e) // the peer says so again and again
	}
}

// unsupported reports whether the peer is known to take nothing of a collection: its
// release does not know it, and so sends no digest of it.
func (s *source) unsupported(c *connection) bool {
	return c.stage == digested && s.phase == phaseUnknown
}
