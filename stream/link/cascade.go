package link

import (
	"slices"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// An entry that announces its end takes what it stands for along: the workloads of an
// Application. Many of them may be an accident, and what was sent cannot be called back.
// So a guard of the hub sends an end once
//
//   - a Judged that was asked for after the end was noticed says that the hub's history
//     continues, and no Doomed before it that the place of the entry goes as a whole;
//   - it was counted, see Cascades;
//   - and it is not one of too many, as the caller finds who counts them.
//
// What is held back for the place or the number goes once someone accepts it. What the
// sink knows of already is held back no more.

// countTime is how long an end waits at most until it is counted.
const countTime = 5 * time.Minute

// Cascades is what the caller, who counts the entries that announce their end, makes of
// their number. The zero value holds nothing back.
type Cascades struct {
	// Held says for people why ends that the sink does not know of wait for someone;
	// empty when they do not.
	Held string
	// Counting says that more may come, so that ends wait, each countTime at most.
	Counting bool
}

// Doomed says, before the Judged that answers a Judge, which of Places are being
// deleted with all that is in them.
type Doomed struct {
	// Places has the reason for people, by the namespace of entries.
	Places map[string]string
}

func (Cascades) input() {}
func (Doomed) input()   {}

// ending is an entry that announces its end.
type ending struct {
	uid   string    // of the source's object
	since time.Time // when it was noticed; zero until the Step that notices it ends
	// asked says that a judgement was asked for since, and placed that there was one.
	asked, placed bool
	doomed        string // why its place goes; empty when it does not
	late          bool   // it has waited for its count long enough
	accepted      bool   // someone accepted it, whatever its number and place
	told          bool   // the sink knows of it
}

// endings are those of one source, and of them those that were not yet noticed, and
// those that are not late, oldest first.
type endings struct {
	all   map[stream.EntryKey]*ending
	fresh []*ending
	early []*ending
}

// endsWith keeps the endings after a change of e.
func (s *source) endsWith(key stream.EntryKey, e *entry) {
	if !e.leaving {
		delete(s.endings.all, key)
		return
	}
	g := s.endings.all[key]
	if g == nil || g.uid != e.desired.SourceUID {
		g = &ending{uid: e.desired.SourceUID}
		if s.endings.all == nil {
			s.endings.all = map[stream.EntryKey]*ending{}
		}
		s.endings.all[key] = g
		s.endings.fresh = append(s.endings.fresh, g)
	}
	g.told = g.told || s.ready && e.satisfied()
}

// tellEndings notes which ends the sink knows of, once it is known what that holds.
func (s *source) tellEndings() {
	for key, g := range s.endings.all {
		if e := s.entries.get(key); e != nil && e.satisfied() {
			g.told = true
		}
	}
}

// notice gives the new endings their time, and reports whether there are any.
func (s *source) notice(now time.Time) bool {
	fresh := s.endings.fresh
	for _, g := range fresh {
		g.since = now
	}
	s.endings.early = append(s.endings.early, fresh...)
	s.endings.fresh = nil
	return len(fresh) > 0
}

// count takes what the caller makes of the number of endings.
func (l *Link) count(c Cascades) {
	if c != l.cascades {
		l.cascades = c
		l.release()
	}
}

// countLate lets endings be that have waited for their count long enough.
func (l *Link) countLate(now time.Time) {
	for _, s := range l.sources {
		late := 0
		for _, g := range s.endings.early {
			if now.Sub(g.since) < countTime {
				break
			}
			g.late, late = true, late+1
		}
		if late > 0 {
			s.endings.early = s.endings.early[late:]
			l.release()
		}
	}
}

// countDue is when countLate has something to do; the zero time when it has not.
func (l *Link) countDue(s *source) time.Time {
	if !l.cascades.Counting || len(s.endings.early) == 0 {
		return time.Time{}
	}
	return s.endings.early[0].since.Add(countTime)
}

// askEndings notes that a judgement is asked for.
func (s *source) askEndings() {
	for _, g := range s.endings.all {
		g.asked = !g.told
	}
}

// Places are the namespaces of the entries for whose ends the last Judge asked, in
// order.
func (l *Link) Places() []string {
	var places []string
	for _, s := range l.sources {
		for key, g := range s.endings.all {
			if g.asked {
				places = append(places, key.Namespace)
			}
		}
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// place takes what the judgement says of the endings that it was asked for. It reports
// whether some are held back for it.
func (l *Link) place(s *source) (held bool) {
	for key, g := range s.endings.all {
		if !g.asked || g.told {
			continue
		}
		g.placed, g.doomed = true, l.doomed[key.Namespace]
		held = held || g.doomed != "" && !g.accepted
	}
	return held
}

// displace forgets what was found out on a connection.
func (s *source) displace() {
	for _, g := range s.endings.all {
		g.asked, g.placed = false, false
	}
}

// keeps reports whether the end of an entry is not to be sent, whatever the history.
func (l *Link) keeps(s *source, key stream.EntryKey) bool {
	g := s.endings.all[key]
	if g == nil || g.told || g.accepted {
		return false
	}
	return !g.placed || l.cascades.Counting && !g.late || l.heldFor(g) != ""
}

// heldFor says why someone has to accept an ending; empty when nobody has to.
func (l *Link) heldFor(g *ending) string {
	if g.told || g.accepted {
		return ""
	}
	if g.doomed != "" {
		return g.doomed
	}
	return l.cascades.Held
}

// heldEnding is heldFor of an entry; empty also while it is on its way.
func (l *Link) heldEnding(s *source, key stream.EntryKey, e *entry) string {
	g := s.endings.all[key]
	if g == nil || e.inFlight() != "" || e.satisfied() {
		return ""
	}
	return l.heldFor(g)
}

// Ending reports whether an entry of ours announces an end that the peer is not known
// to have been told of, and that nobody accepted.
func (l *Link) Ending() bool {
	for _, s := range l.sources {
		for key, g := range s.endings.all {
			e := s.entries.get(key)
			// Before the peer has said what it holds, what is believed of it is a guess.
			if e != nil && !g.told && !g.accepted && !(s.ready && (e.satisfied() || e.missing())) {
				return true
			}
		}
	}
	return false
}

// acceptEnding takes an entry's end, or its absence, at its word.
func (s *source) acceptEnding(key stream.EntryKey) {
	e := s.entries.get(key)
	if e == nil {
		return
	}
	if g := s.endings.all[key]; g != nil {
		g.accepted = true
	} else if e.missing() && !e.accepted {
		e.accepted = true
		for i := range s.peaks {
			s.peaks[i].size-- // it counts as gone, lest it be remembered as lost when it is
		}
	}
	e.withheld = false
	s.settle(key, e)
}

// Lacks reports whether the peer's sink is known, on this connection, to hold nothing
// of an entry of ours.
func (l *Link) Lacks(key stream.EntryKey) bool {
	s := l.source(key.Collection)
	if s == nil || !s.ready {
		return false
	}
	e := s.entries.get(key)
	return e == nil || e.held().Absent()
}
