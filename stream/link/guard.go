package link

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// The absence of an entry at its source is taken at its word only by a guard of
// the hub, which holds it back (design, section 4.3)
//
//   - until a Judged has said, after the absence was noticed, that the hub's
//     history continues;
//   - when it does not, until someone accepts it; likewise what the sink does not let
//     us take before, since it is another hub's;
//   - and when the collection would become smaller by more than fewAbsences, and
//     by more than one in absenceShare, within absenceMemory, until someone
//     accepts it. What comes anew makes up for what goes: short-lived entries are
//     no loss. What was Seen to be deleted is no absence, and does not count.
const (
	fewAbsences   = 10
	absenceShare  = 5
	absenceMemory = 5 * time.Minute
	// judgeAgain is when a judgement that held something back is asked for again. One that
	// could not be had is after judgeSoon, which doubles up to judgeAgain.
	judgeAgain = 10 * time.Second
	judgeSoon  = time.Second
	judgeFree  = 20
	// beginTime is how long after a break no new history begins: what was asked of an
	// API server before, by whoever has died since, has come about by then, or will
	// not (a call may take 30 s).
	beginTime = 35 * time.Second
)

// Judge asks the caller to judge whether the history continues, by what the hub's
// API server says after this moment, and to answer by Judged, after Doomed where there
// are Places.
type Judge struct{}

// Begin says that a new history may begin in place of one that did not continue:
// nothing is held back on its account, or what was has been accepted.
type Begin struct{}

// Judged answers Judge.
type Judged struct {
	// Broken says for people why the history does not continue; empty when it does.
	Broken string
	// Unknown says that it could not be found out, and Broken means nothing.
	Unknown bool
	// Stale says that what the caller's store shows may be from before the break, so
	// that nothing follows from it as yet; it is to be judged again soon.
	Stale bool
}

// Doubted says that the caller saw a reason to have the history judged again.
type Doubted struct{}

// Accepted takes the absences at their word that Withheld names with this ID.
type Accepted struct{ ID string }

func (Judge) action()   {}
func (Begin) action()   {}
func (Judged) input()   {}
func (Accepted) input() {}
func (Doubted) input()  {}

// Withheld is what the guards of a link hold back.
type Withheld struct {
	// ID names this set of entries; another set has another. Empty when nothing is
	// held back.
	ID string
	// Broken is why the history does not continue; empty when it does, and what is
	// held back is held back for its number.
	Broken string
	// Total is the number of entries, and Keys those of them that are known by name,
	// in order.
	Total int
	Keys  []stream.EntryKey
	// Ending are those of Keys that announce their end, rather than being absent, and
	// Cascades is why they wait, when it is not for the history alone.
	Ending   []stream.EntryKey
	Cascades string
}

// guarded reports whether the entries of c exist by the word of their source.
func guarded(c stream.Collection) bool {
	switch c {
	case stream.Applications, stream.AppProjects, stream.Repositories, stream.Trust:
		return true
	}
	return false
}

// judgement is what a link knows of the history on its present connection.
type judgement struct {
	// known says that there was a Judged on this connection, and broken what it said.
	known  bool
	broken string
	failed int       // in a row, that could not be had
	since  time.Time // when it was first said to be broken
	stale  bool      // what we desire or hold may be from before the break
	wanted bool      // something waits for one
	asked  bool      // Judge was returned and not yet answered
	again  time.Time // when to want one again; zero for not before something happens
	// recent counts those asked for since window; after judgeFree of them there is
	// judgeSoon between two, whatever the peer does.
	recent int
	window time.Time
	next   time.Time
}

// closed reports whether nothing may go, intended or not.
func (j *judgement) closed() bool { return !j.known || j.broken != "" }

// peaks remembers how large a collection was of late.
type peaks []peak

type peak struct {
	at   time.Time
	size int
	came int // since then, and not seen to be deleted
}

// highest takes the size of now and returns the largest within absenceMemory.
func (p *peaks) highest(now time.Time, size int) int {
	*p = slices.DeleteFunc(*p, func(old peak) bool { return old.size <= size || now.Sub(old.at) > absenceMemory })
	// What is left is larger and older: the first is the largest.
	*p = append(*p, peak{at: now, size: size})
	return (*p)[0].size
}

// tooMany is the rule of 10 and 20 %: of size entries only so many would stay.
func tooMany(size, stay int) bool {
	lost := size - stay
	return lost > fewAbsences && lost*absenceShare > size
}

// missing reports whether the sink holds an entry that the source has not: it has
// nothing, or the end of another object of that name.
func (e *entry) missing() bool {
	held := e.held()
	return !held.Absent() && (e.desired.Absent() || e.leaving && held.SourceUID != e.desired.SourceUID)
}

// another reports whether the sink holds another object than the one of that name
// that it should.
func (e *entry) another() bool {
	held := e.held()
	return !held.Absent() && !e.desired.Absent() && held.SourceUID != e.desired.SourceUID
}

// untaken reports whether the sink does not let us have the object that it holds: one
// that is another hub's until the break of the history is accepted.
func (e *entry) untaken() bool {
	return e.another() && e.refusal() != nil && e.refusal().Kind == stream.RefusalNotOwned
}

// weigh keeps the sets of what is missing, leaving, on its way and another, after a
// change of e.
func (s *source) weigh(key stream.EntryKey, e *entry) {
	missing, leaving := e.missing(), e.leaving && !e.satisfied()
	came := mark(s.missing, key, e, missing)
	s.fresh = s.fresh || came && missing
	if mark(s.leaving, key, e, leaving) || came {
		// What was allowed was the other, or is done.
		e.asked, e.free, e.accepted, e.withheld = false, false, false, false
	}
	mark(s.flying, key, e, e.inFlight() != "" && e.desired.Absent())
	s.endsWith(key, e)
	mark(s.another, key, e, e.another())
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

// withholds reports whether the guard holds back what would now be sent of e.
func (l *Link) withholds(s *source, key stream.EntryKey, e *entry) bool {
	if !l.cfg.Guard || !guarded(s.collection) {
		return false
	}
	return !e.accepted && (e.missing() && !e.free || e.leaving && (l.judgement.closed() || !e.missing() && l.keeps(s, key)))
}

// judge ends a Step: it asks for a judgement when one is wanted, and tells when a
// new history may begin.
func (l *Link) judge(now time.Time, actions []Action) []Action {
	j := &l.judgement
	if !l.cfg.Guard || !l.connected {
		return actions
	}
	for _, s := range l.sources {
		if s.fresh && s.ready && guarded(s.collection) {
			s.fresh, j.wanted = false, true
		}
		if s.notice(now) {
			j.wanted = true
		}
	}
	if j.known && j.broken != "" && !j.stale && now.Sub(j.since) >= beginTime && l.nothingToHold() {
		j.broken = ""
		for _, s := range l.sinks {
			s.forgetAccepted()
		}
		l.release()
		actions = append(actions, Begin{})
	}
	if !j.wanted || j.asked {
		return actions
	}
	if now.Before(j.next) {
		j.wanted = false
		if j.again.IsZero() || j.again.After(j.next) {
			j.again = j.next
		}
		return actions
	}
	if now.Sub(j.window) > judgeAgain {
		j.recent, j.window = 0, now
	}
	if j.recent++; j.recent > judgeFree {
		j.next = now.Add(judgeSoon)
	}
	j.wanted, j.asked, j.again = false, true, time.Time{}
	for _, s := range l.sources {
		for _, e := range s.missing {
			e.asked = true
		}
		s.askEndings()
	}
	for _, s := range l.sinks {
		for key, w := range s.waiting {
			w.asked = true
			s.waiting[key] = w
		}
	}
	return append(actions, Judge{})
}

// nothingToHold reports whether both sides are known to agree on what exists, but
// for what was accepted, and nothing is on its way that is no more.
func (l *Link) nothingToHold() bool {
	for _, s := range l.sources {
		if !guarded(s.collection) {
			continue
		}
		if l.unheard(s) {
			continue // a release that does not know of it holds none of ours
		}
		if !s.ready || len(s.flying) > 0 {
			return false
		}
		for _, set := range []map[stream.EntryKey]*entry{s.missing, s.leaving} {
			for _, e := range set {
				if !e.accepted {
					return false
				}
			}
		}
		for _, e := range s.another {
			if !e.accepted && (e.refusal() == nil || e.untaken()) {
				return false // or it is not known yet whether the sink lets us have it
			}
		}
	}
	for _, s := range l.sinks {
		if !guarded(s.collection) {
			continue
		}
		if !s.told || s.absences > uint64(len(s.passed)) || len(s.waiting) > 0 {
			return false
		}
	}
	return true
}

// judged takes an answer.
func (l *Link) judged(now time.Time, in Judged) []Action {
	j := &l.judgement
	if !j.asked {
		return nil // of an earlier connection
	}
	j.asked = false
	if in.Unknown {
		j.again = now.Add(min(judgeSoon<<min(j.failed, 4), judgeAgain))
		j.failed++
		return l.refuseWaiting(stream.Refusal{
			Kind: stream.RefusalUnavailable, Message: "the API server of the hub does not say whether its history continues",
		})
	}
	if j.broken == "" {
		j.since = now
	}
	j.failed = 0
	j.known, j.broken, j.stale = true, in.Broken, in.Stale
	if j.broken != "" {
		l.unsee()
	}
	for _, s := range l.sinks {
		if s.acceptedFor != j.broken {
			s.forgetAccepted() // what is missing now was not meant
		}
	}
	var actions []Action
	held := false
	for _, s := range l.sources {
		if guarded(s.collection) {
			held = l.weighSource(now, s) || held
			held = l.place(s) || held
		}
	}
	for _, s := range l.sinks {
		if guarded(s.collection) {
			more, kept := l.weighSink(now, s)
			actions = append(actions, more...)
			held = held || kept
		}
	}
	if held || j.broken != "" {
		j.again = now.Add(judgeAgain)
	}
	if j.stale {
		j.again = now.Add(judgeSoon)
	}
	l.release()
	return actions
}

// weighSource lets the absences of a source go that were noticed before the
// judgement, or none of them; of what was seen to be deleted it lets each go by
// itself. It reports whether some are held back.
func (l *Link) weighSource(now time.Time, s *source) (held bool) {
	var due, facts []*entry
	// What was accepted counts as gone, lest it be remembered as lost when it is.
	going, size := 0, int(s.believed.entries)
	for _, e := range s.leaving {
		if e.accepted && !e.missing() {
			size--
		}
	}
	for key, e := range s.missing {
		if e.accepted {
			size--
			continue
		}
		if d, fact := l.fact(s, key, e); fact {
			s.count(key, d)
			size--
			if e.asked {
				facts = append(facts, e)
			}
			continue
		}
		going++
		if e.asked && !e.free {
			due = append(due, e)
		}
	}
	s.many = tooMany(s.peaks.highest(now, size), size-going)
	free(facts) // there are none after a break
	if l.judgement.broken != "" {
		for _, e := range s.missing {
			e.free = false // it was of the history that is broken now
		}
		return going > 0
	}
	if s.many {
		return going > 0
	}
	free(due)
	return false
}

func free(entries []*entry) {
	for _, e := range entries {
		e.free = true
	}
}

// weighSink does the same for what the peer says of its absences.
func (l *Link) weighSink(now time.Time, s *sink) (actions []Action, held bool) {
	passed := len(s.passed) // they count as gone
	going := max(int(min(s.absences, maxMissing))-passed, len(s.waiting))
	size := s.held.len() - passed
	if l.judgement.broken == "" && !tooMany(s.peaks.highest(now, size), size-going) {
		for _, key := range s.waitingKeys() {
			if w := s.waiting[key]; w.asked {
				delete(s.waiting, key)
				delete(s.refused, key)
				actions = append(actions, Apply{Event: w.event})
			}
		}
		return actions, false
	}
	before := len(s.refused)
	for _, key := range s.waitingKeys() {
		w := s.waiting[key]
		if !w.asked {
			continue
		}
		s.refused[key] = true
		actions = append(actions, l.answerWaiting(s, key, heldBack)...)
	}
	if before == 0 {
		s.firstNamed = now
	}
	if len(s.refused) > before {
		s.lastNamed = now
	}
	s.naming = now.Sub(s.lastNamed) < judgeAgain && now.Sub(s.firstNamed) < absenceMemory
	return actions, len(s.refused) > 0
}

// withholds reports whether the sink holds back deletions that someone can accept. A peer
// asks for one after the other, and who accepts the first of them alone would have to
// accept again and again; so it is no set before the peer has asked for as many as it
// said that it lacks, or has asked for no other for a while.
func (s *sink) withholds() bool {
	if len(s.refused) == 0 {
		return false
	}
	named := s.told && uint64(len(s.refused)+len(s.passed)) >= s.absences
	return named || !s.naming
}

// heldBack is the answer to a deletion that someone has to accept.
var heldBack = stream.Refusal{
	Kind: stream.RefusalHeld, Message: "the hub does not remove it before someone accepts that: see condition DeletionsHeld of the Agent",
}

// guardEvent takes an event of the peer before it is applied. It does not pass when
// the guard keeps or answers it.
func (l *Link) guardEvent(s *sink, e stream.Event) (actions []Action, passes bool) {
	if !l.cfg.Guard || !guarded(s.collection) {
		return nil, true
	}
	if e.Verb != stream.Delete || s.held.get(e.Key).Absent() {
		s.settled(e.Key)
		return nil, true
	}
	if s.accepted[e.Key] {
		s.passed[e.Key] = true
		return nil, true
	}
	s.waiting[e.Key] = waiting{event: e}
	if s.refused[e.Key] && !l.judgement.again.IsZero() {
		// The next judgement is to come. A peer that asks without end must not have the
		// hub's API server asked as often.
		return l.answerWaiting(s, e.Key, heldBack), false
	}
	l.judgement.wanted = true
	return nil, false
}

// waiting is a deletion that waits for a judgement.
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

// settled forgets what was held back of an entry that is there again, or gone.
func (s *sink) settled(key stream.EntryKey) {
	delete(s.refused, key)
	delete(s.accepted, key)
	delete(s.passed, key)
}

func (s *sink) forgetAccepted() {
	clear(s.accepted)
	clear(s.passed)
}

// announced takes what the peer says of the absences of its sources.
func (l *Link) announced(absences []stream.Absence) {
	for _, a := range absences {
		s := l.sink(a.Collection)
		if s == nil {
			continue
		}
		s.absences, s.told = a.Entries, true
		if a.Entries == 0 {
			clear(s.refused)
			s.forgetAccepted()
		}
	}
}

// absences is what we tell a guard of the sources that know what the peer holds.
func (l *Link) absences() []stream.Absence {
	if l.cfg.Guard {
		return nil // there is one guard, and it is ours
	}
	var out []stream.Absence
	for _, s := range l.sources {
		if s.ready && guarded(s.collection) {
			out = append(out, stream.Absence{Collection: s.collection, Entries: uint64(len(s.missing))})
		}
	}
	return out
}

func (l *Link) refuseWaiting(r stream.Refusal) []Action {
	var actions []Action
	for _, s := range l.sinks {
		for _, key := range s.waitingKeys() {
			actions = append(actions, l.answerWaiting(s, key, r)...)
		}
	}
	return actions
}

func (l *Link) answerWaiting(s *sink, key stream.EntryKey, r stream.Refusal) []Action {
	e := s.waiting[key].event
	delete(s.waiting, key)
	return l.hold(s, Held{Key: key, Version: s.held.get(key), Event: e.ID, Refusal: &r})
}

// release queues again what the guard may let go now; what it may not is put back
// when its turn comes.
func (l *Link) release() {
	for _, s := range l.sources {
		if !guarded(s.collection) {
			continue
		}
		s.settleAll(func(e *entry) bool {
			was := e.withheld
			e.withheld = false
			return was
		})
	}
}

// accept takes what is held back at its word if it is the set that was meant.
func (l *Link) accept(id string) {
	if id == "" || l.Withheld().ID != id {
		return
	}
	for _, s := range l.sources {
		for key, e := range s.leaving {
			if l.heldEnding(s, key, e) != "" {
				s.endings.all[key].accepted = true
			}
		}
		if !guarded(s.collection) || !s.many && l.judgement.broken == "" {
			continue // not of this set
		}
		for _, e := range s.missing {
			e.accepted = true
		}
		for _, e := range s.leaving {
			e.accepted = e.accepted || l.judgement.broken != ""
		}
		for _, e := range s.another {
			e.accepted = e.accepted || l.judgement.broken != "" && e.untaken()
		}
		s.many, s.peaks = false, nil
	}
	for _, s := range l.sinks {
		if len(s.refused) > 0 && !s.withholds() {
			continue // it was not shown
		}
		for key := range s.refused {
			s.accepted[key] = true
		}
		clear(s.refused)
		s.acceptedFor, s.peaks = l.judgement.broken, nil
	}
	l.release()
}

// Withheld returns what is held back at present.
func (l *Link) Withheld() Withheld {
	w := Withheld{Broken: l.judgement.broken}
	if !l.cfg.Guard {
		return w
	}
	sum := sha256.New()
	add := func(key stream.EntryKey, held stream.Version) {
		w.Keys = append(w.Keys, key)
		sum.Write([]byte(key.String() + "\x00" + held.SourceUID + "\x00"))
	}
	for _, s := range l.sources {
		if !guarded(s.collection) {
			continue
		}
		var keys []stream.EntryKey
		for key, e := range s.missing {
			if _, fact := l.fact(s, key, e); !fact && !e.accepted && !e.free && (s.many || l.judgement.broken != "") {
				keys = append(keys, key)
			}
		}
		for key, e := range s.leaving {
			why := l.heldEnding(s, key, e)
			if !e.accepted && !e.missing() && (why != "" || l.judgement.broken != "") {
				keys, w.Ending = append(keys, key), append(w.Ending, key)
				w.Cascades = max(w.Cascades, why)
			}
		}
		for key, e := range s.another {
			if l.judgement.broken != "" && !e.accepted && !e.leaving && e.untaken() {
				keys = append(keys, key)
			}
		}
		slices.SortFunc(keys, byName)
		for _, key := range keys {
			add(key, s.entries.get(key).held())
		}
	}
	slices.SortFunc(w.Ending, byName)
	w.Total = len(w.Keys)
	for _, s := range l.sinks {
		if !guarded(s.collection) || !s.withholds() {
			continue
		}
		var keys []stream.EntryKey
		for key := range s.refused {
			keys = append(keys, key)
		}
		slices.SortFunc(keys, byName)
		for _, key := range keys {
			add(key, s.held.get(key))
		}
		w.Total += max(len(keys), int(min(s.absences, maxMissing)))
	}
	if w.Total > 0 {
		w.ID = hex.EncodeToString(sum.Sum(nil)[:8])
	}
	return w
}
