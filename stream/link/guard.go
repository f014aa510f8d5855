package link

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// The absence of an entry at its source is taken at its word only by a guard of
// the hub, which holds it back (docs/design/deletes-and-history.md)
//
//   - until a HistoryChecked has said, after the absence was noticed, that the hub's
//     history continues;
//   - when it does not, until someone accepts it; likewise what the sink does not let
//     us take before, since it is another hub's;
//   - and when the collection would become smaller by more than fewAbsences, and
//     by more than one in absenceDivisor, within absenceWindow, until someone
//     accepts it. What comes again makes up for what goes: short-lived entries are
//     no loss. What was Seen to be deleted is no absence, and does not count.
const (
	fewAbsences    = 10
	absenceDivisor = 5
	absenceWindow  = 5 * time.Minute
	// recheckInterval is when a check that held something back is asked for again. One that
	// could not be had is after recheckSoon, which doubles up to recheckInterval.
	recheckInterval = 10 * time.Second
	recheckSoon     = time.Second
	freeChecks      = 20
	// beginTime is how long after a break no new history begins: what was asked of an
	// API server before, by anyone who has died since, has come about by then, or will
	// not (a call may take 30 s).
	beginTime = 35 * time.Second
)

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

// guard holds back what absence alone would remove. It knows the ends of the link, and
// answers for the sinks.
type guard struct {
	on       bool // Config.Guard
	ends     *ends
	conn     *connection
	inbound  *inbound
	check    historyCheck
	cascades Cascades
	doomed   map[string]string // by the last Doomed
	// unfamiliar are the entries that Unfamiliar returns next.
	unfamiliar []stream.EntryKey
}

// historyCheck is what a link knows of the history on its present connection.
type historyCheck struct {
	history history
	cause   string    // of a broken one, for people
	failed  int       // in a row, that could not be had
	since   time.Time // when it was first said to be broken
	stale   bool      // what we desire or hold may be from before the break
	// wanted says that something waits for one, asked that CheckHistory was returned and is not
	// answered: what comes in between wants another.
	wanted, asked bool
	nextAt        time.Time // when to want one again; zero for not before something happens
	// recent counts those asked for since window; after freeChecks of them there is
	// recheckSoon between two, whatever the peer does.
	recent int
	window time.Time
	next   time.Time
}

// history is what the last HistoryChecked of this connection said.
type history uint8

const (
	historyUnknown history = iota // there was none
	historyContinues
	historyBroken
)

// closed reports whether nothing may go, intended or not.
func (j *historyCheck) closed() bool { return j.history != historyContinues }

// record takes what a HistoryChecked says.
func (j *historyCheck) record(now time.Time, in HistoryChecked) {
	if j.history != historyBroken {
		j.since = now
	}
	j.failed, j.cause, j.stale = 0, in.Broken, in.Stale
	j.history = historyContinues
	if in.Broken != "" {
		j.history = historyBroken
	}
}

// handle takes what is for the guard alone.
func (gd *guard) handle(now time.Time, in Input) []Action {
	switch in := in.(type) {
	case HistoryChecked:
		return gd.historyChecked(now, in)
	case Accepted:
		gd.accept(in.ID)
	case Seen:
		gd.recordSeen(in)
	case Verified:
		gd.verified(in.Key)
	case RecheckHistory:
		gd.check.wanted = true
	case Doomed:
		gd.doomed = in.Namespaces
	case Cascades:
		gd.count(in)
	}
	return nil
}

// tick asks again for a check whose time has come.
func (gd *guard) tick(now time.Time) {
	if j := &gd.check; !j.nextAt.IsZero() && !now.Before(j.nextAt) {
		j.nextAt, j.wanted = time.Time{}, true
	}
	gd.countLate(now)
}

// withholds reports whether the guard holds back what would now be sent of e.
func (gd *guard) withholds(s *source, key stream.EntryKey, e *entry) bool {
	if !gd.on || !s.collection.Desired() {
		return false
	}
	return !e.accepted() && (e.missing() && e.clearance != cleared ||
		e.leaving && (gd.check.closed() || !e.missing() && gd.withholdsEnd(s, key)))
}

// requestCheck ends a Step: it asks for a check when one is wanted, and tells when a
// new history may begin.
func (gd *guard) requestCheck(now time.Time, actions []Action) []Action {
	j := &gd.check
	if !gd.on || gd.conn.stage == away {
		return actions
	}
	for _, s := range gd.ends.sources {
		if s.gone.fresh && s.phase == phaseReady && s.collection.Desired() {
			s.gone.fresh, j.wanted = false, true
		}
		if s.endings.notice(now) {
			j.wanted = true
		}
	}
	if j.history == historyBroken && !j.stale && now.Sub(j.since) >= beginTime && gd.agreed() {
		j.history, j.cause = historyContinues, ""
		for _, s := range gd.ends.sinks {
			s.forgetAccepted()
		}
		gd.release()
		actions = append(actions, Begin{})
	}
	if !j.wanted || j.asked {
		return actions
	}
	if now.Before(j.next) {
		j.wanted = false
		if j.nextAt.IsZero() || j.nextAt.After(j.next) {
			j.nextAt = j.next
		}
		return actions
	}
	if now.Sub(j.window) > recheckInterval {
		j.recent, j.window = 0, now
	}
	if j.recent++; j.recent > freeChecks {
		j.next = now.Add(recheckSoon)
	}
	j.wanted, j.asked, j.nextAt = false, true, time.Time{}
	for _, s := range gd.ends.sources {
		for _, e := range s.gone.missing {
			e.clearance = max(e.clearance, asked)
		}
		s.endings.ask()
	}
	for _, s := range gd.ends.sinks {
		for key, w := range s.waiting {
			w.asked = true
			s.waiting[key] = w
		}
	}
	return append(actions, CheckHistory{})
}

// agreed reports whether both sides are known to agree on what exists, but
// for what was accepted, and nothing is on its way that is no more.
func (gd *guard) agreed() bool {
	for _, s := range gd.ends.sources {
		if !s.collection.Desired() {
			continue
		}
		if s.unsupported(gd.conn) {
			continue // a release that does not know of it holds none of ours
		}
		if s.phase != phaseReady || len(s.gone.flying) > 0 {
			return false
		}
		for _, set := range []map[stream.EntryKey]*entry{s.gone.missing, s.gone.leaving} {
			for _, e := range set {
				if !e.accepted() {
					return false
				}
			}
		}
		for _, e := range s.gone.another {
			if !e.accepted() && (e.refusal() == nil || e.ownedByOther()) {
				return false // or it is not known yet whether the sink lets us have it
			}
		}
	}
	for _, s := range gd.ends.sinks {
		if !s.collection.Desired() {
			continue
		}
		if !s.inventoryTold || s.absences > uint64(len(s.passed)) || len(s.waiting) > 0 {
			return false
		}
	}
	return true
}

// historyChecked takes an answer.
func (gd *guard) historyChecked(now time.Time, in HistoryChecked) []Action {
	j := &gd.check
	if !j.asked {
		return nil // of an earlier connection
	}
	j.asked = false
	if in.Unknown {
		j.nextAt = now.Add(min(recheckSoon<<min(j.failed, 4), recheckInterval))
		j.failed++
		return gd.refuseWaiting(stream.Refusal{
			Kind: stream.RefusalUnavailable, Message: "the API server of the hub does not say whether its history continues",
		})
	}
	j.record(now, in)
	if j.history == historyBroken {
		gd.forgetSeen()
	}
	for _, s := range gd.ends.sinks {
		if s.acceptedFor != j.cause {
			s.forgetAccepted() // what is missing now was not meant
		}
	}
	var actions []Action
	held := false
	for _, s := range gd.ends.sources {
		if s.collection.Desired() {
			held = gd.clearAbsences(now, s) || held
			held = gd.checkEndings(s) || held
		}
	}
	for _, s := range gd.ends.sinks {
		if s.collection.Desired() {
			more, kept := gd.clearDeletions(now, s)
			actions = append(actions, more...)
			held = held || kept
		}
	}
	if held || j.history == historyBroken {
		j.nextAt = now.Add(recheckInterval)
	}
	if j.stale {
		j.nextAt = now.Add(recheckSoon)
	}
	gd.release()
	return actions
}

// clearAbsences lets the absences of a source go that were noticed before the
// check, or none of them; of what was seen to be deleted it lets each go by
// itself. It reports whether some are held back.
func (gd *guard) clearAbsences(now time.Time, s *source) (held bool) {
	var due, facts []*entry
	// What was accepted counts as gone, lest it be remembered as lost when it is.
	going, size := 0, int(s.believed.entries)
	for _, e := range s.gone.leaving {
		if e.accepted() && !e.missing() {
			size--
		}
	}
	for key, e := range s.gone.missing {
		if e.accepted() {
			size--
			continue
		}
		if d, fact := gd.fact(s, key, e); fact {
			s.count(key, d)
			size--
			if e.clearance >= asked {
				facts = append(facts, e)
			}
			continue
		}
		going++
		if e.clearance == asked {
			due = append(due, e)
		}
	}
	s.gone.many = tooMany(s.gone.peaks.highest(now, size), size-going)
	clearAll(facts) // there are none after a break
	if gd.check.history == historyBroken {
		for _, e := range s.gone.missing {
			if e.clearance == cleared {
				e.clearance = asked // it was of the history that is broken now
			}
		}
		return going > 0
	}
	if s.gone.many {
		return going > 0
	}
	clearAll(due)
	return false
}

func clearAll(entries []*entry) {
	for _, e := range entries {
		e.clearance = max(e.clearance, cleared)
	}
}

// clearDeletions does the same for what the peer says of its absences.
func (gd *guard) clearDeletions(now time.Time, s *sink) (actions []Action, held bool) {
	passed := len(s.passed) // they count as gone
	going := max(int(min(s.absences, maxMissing))-passed, len(s.waiting))
	size := s.stored.len() - passed
	if gd.check.history != historyBroken && !tooMany(s.peaks.highest(now, size), size-going) {
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
		actions = append(actions, gd.answerWaiting(s, key, heldBack)...)
	}
	if before == 0 {
		s.firstNamed = now
	}
	if len(s.refused) > before {
		s.lastNamed = now
	}
	s.naming = now.Sub(s.lastNamed) < recheckInterval && now.Sub(s.firstNamed) < absenceWindow
	return actions, len(s.refused) > 0
}

// heldBack is the answer to a deletion that someone has to accept.
var heldBack = stream.Refusal{
	Kind:    stream.RefusalHeld,
	Message: "the hub does not remove it before someone accepts that: see condition DeletionsHeld of the Agent",
}

// guardEvent takes an event of the peer before it is applied. It does not pass when
// the guard keeps or answers it.
func (gd *guard) guardEvent(s *sink, e stream.Event) (actions []Action, passes bool) {
	if !gd.on || !s.collection.Desired() {
		return nil, true
	}
	if e.Verb != stream.Delete || s.stored.get(e.Key).Absent() {
		s.answered(e.Key)
		return nil, true
	}
	if s.accepted[e.Key] {
		s.passed[e.Key] = true
		return nil, true
	}
	s.waiting[e.Key] = waiting{event: e}
	if s.refused[e.Key] && !gd.check.nextAt.IsZero() {
		// The next check is to come. A peer that asks without end must not have the
		// hub's API server asked as often.
		return gd.answerWaiting(s, e.Key, heldBack), false
	}
	gd.check.wanted = true
	return nil, false
}

// announced takes what the peer says of the absences of its sources.
func (gd *guard) announced(absences []stream.Absence) {
	for _, a := range absences {
		s := gd.ends.sink(a.Collection)
		if s == nil {
			continue
		}
		s.absences, s.inventoryTold = a.Entries, true
		if a.Entries == 0 {
			clear(s.refused)
			s.forgetAccepted()
		}
	}
}

// absences is what we tell a guard of the sources that know what the peer holds.
func (gd *guard) absences() []stream.Absence {
	if gd.on {
		return nil // there is one guard, and it is ours
	}
	var out []stream.Absence
	for _, s := range gd.ends.sources {
		if s.phase == phaseReady && s.collection.Desired() {
			out = append(out, stream.Absence{Collection: s.collection, Entries: uint64(len(s.gone.missing))})
		}
	}
	return out
}

func (gd *guard) refuseWaiting(r stream.Refusal) []Action {
	var actions []Action
	for _, s := range gd.ends.sinks {
		for _, key := range s.waitingKeys() {
			actions = append(actions, gd.answerWaiting(s, key, r)...)
		}
	}
	return actions
}

func (gd *guard) answerWaiting(s *sink, key stream.EntryKey, r stream.Refusal) []Action {
	e := s.waiting[key].event
	delete(s.waiting, key)
	return gd.inbound.noteStored(s, Stored{Key: key, Version: s.stored.get(key), Event: e.ID, Refusal: &r})
}

// release queues again what the guard may let go now; what it may not is put back
// when its turn comes.
func (gd *guard) release() {
	for _, s := range gd.ends.sources {
		if !s.collection.Desired() {
			continue
		}
		s.enqueueAll(func(e *entry) bool {
			was := e.withheld
			e.withheld = false
			return was
		})
	}
}

// accept takes what is held back at its word if it is the set that was meant.
func (gd *guard) accept(id string) {
	if id == "" || gd.withheld().ID != id {
		return
	}
	for _, s := range gd.ends.sources {
		for key, e := range s.gone.leaving {
			if gd.heldEnding(s, key, e) != "" {
				s.endings.all[key].accepted = true
			}
		}
		if !s.collection.Desired() || !s.gone.many && gd.check.history != historyBroken {
			continue // not of this set
		}
		for _, e := range s.gone.missing {
			e.clearance = accepted
		}
		if gd.check.history == historyBroken {
			for _, e := range s.gone.leaving {
				e.clearance = accepted
			}
			for _, e := range s.gone.another {
				if e.ownedByOther() {
					e.clearance = accepted
				}
			}
		}
		s.gone.many, s.gone.peaks = false, nil
	}
	for _, s := range gd.ends.sinks {
		if len(s.refused) > 0 && !s.withholds() {
			continue // it was not shown
		}
		for key := range s.refused {
			s.accepted[key] = true
		}
		clear(s.refused)
		s.acceptedFor, s.peaks = gd.check.cause, nil
	}
	gd.release()
}

// withheld is what is held back at present.
func (gd *guard) withheld() Withheld {
	w := Withheld{Broken: gd.check.cause}
	if !gd.on {
		return w
	}
	sum := sha256.New()
	add := func(key stream.EntryKey, held stream.Version) {
		w.Keys = append(w.Keys, key)
		sum.Write([]byte(key.String() + "\x00" + held.SourceUID + "\x00"))
	}
	for _, s := range gd.ends.sources {
		if !s.collection.Desired() {
			continue
		}
		var keys []stream.EntryKey
		for key, e := range s.gone.missing {
			if _, fact := gd.fact(s, key, e); !fact && e.clearance < cleared &&
				(s.gone.many || gd.check.history == historyBroken) {
				keys = append(keys, key)
			}
		}
		for key, e := range s.gone.leaving {
			why := gd.heldEnding(s, key, e)
			if !e.accepted() && !e.missing() && (why != "" || gd.check.history == historyBroken) {
				keys, w.Ending = append(keys, key), append(w.Ending, key)
				w.Cascades = max(w.Cascades, why)
			}
		}
		for key, e := range s.gone.another {
			if gd.check.history == historyBroken && !e.accepted() && !e.leaving && e.ownedByOther() {
				keys = append(keys, key)
			}
		}
		slices.SortFunc(keys, byName)
		for _, key := range keys {
			add(key, s.entries.get(key).stored())
		}
	}
	slices.SortFunc(w.Ending, byName)
	w.Total = len(w.Keys)
	for _, s := range gd.ends.sinks {
		if !s.collection.Desired() || !s.withholds() {
			continue
		}
		var keys []stream.EntryKey
		for key := range s.refused {
			keys = append(keys, key)
		}
		slices.SortFunc(keys, byName)
		for _, key := range keys {
			add(key, s.stored.get(key))
		}
		w.Total += max(len(keys), int(min(s.absences, maxMissing)))
	}
	if w.Total > 0 {
		w.ID = hex.EncodeToString(sum.Sum(nil)[:8])
	}
	return w
}
