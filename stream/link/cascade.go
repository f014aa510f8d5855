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
//   - a HistoryChecked that was asked for after the end was noticed says that the hub's history
//     continues, and no Doomed before it that the namespace of the entry goes as a whole;
//   - it was counted, see Cascades;
//   - and it is not one of too many, as the caller finds who counts them.
//
// What is held back for the namespace or the number goes once someone accepts it. What the
// sink knows of already is held back no more.

// countTime is how long an end waits at most until it is counted.
const countTime = 5 * time.Minute

// count takes what the caller makes of the number of endings.
func (gd *guard) count(c Cascades) {
	if c != gd.cascades {
		gd.cascades = c
		gd.release()
	}
}

// countLate lets endings be that have waited for their count long enough.
func (gd *guard) countLate(now time.Time) {
	for _, s := range gd.ends.sources {
		late := 0
		for _, g := range s.endings.early {
			if now.Sub(g.since) < countTime {
				break
			}
			g.late, late = true, late+1
		}
		if late > 0 {
			s.endings.early = s.endings.early[late:]
			gd.release()
		}
	}
}

// countDue is when countLate has something to do; the zero time when it has not.
func (gd *guard) countDue(s *source) time.Time {
	if !gd.cascades.Counting || len(s.endings.early) == 0 {
		return time.Time{}
	}
	return s.endings.early[0].since.Add(countTime)
}

// endingNamespaces are the namespaces of the entries for whose ends the last CheckHistory asked, in
// order.
func (gd *guard) endingNamespaces() []string {
	var places []string
	for _, s := range gd.ends.sources {
		for key, g := range s.endings.all {
			if g.asked {
				places = append(places, key.Namespace)
			}
		}
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// checkEndings takes what the check says of the endings that it was asked for. It reports
// whether some are held back for it.
func (gd *guard) checkEndings(s *source) (held bool) {
	for key, g := range s.endings.all {
		if !g.asked || g.known {
			continue
		}
		g.checked, g.doomed = true, gd.doomed[key.Namespace]
		held = held || g.doomed != "" && !g.accepted
	}
	return held
}

// withholdsEnd reports whether the end of an entry is not to be sent, whatever the history.
func (gd *guard) withholdsEnd(s *source, key stream.EntryKey) bool {
	g := s.endings.all[key]
	if g == nil || g.known || g.accepted {
		return false
	}
	return !g.checked || gd.cascades.Counting && !g.late || g.heldFor(gd.cascades.Held) != ""
}

// heldEnding is heldFor of an entry; empty also while it is on its way.
func (gd *guard) heldEnding(s *source, key stream.EntryKey, e *entry) string {
	g := s.endings.all[key]
	if g == nil || e.inFlight() != "" || e.satisfied() {
		return ""
	}
	return g.heldFor(gd.cascades.Held)
}

// ending reports whether an entry of ours announces an end that the peer is not known
// to have been told of, and that no one accepted.
func (gd *guard) ending() bool {
	for _, s := range gd.ends.sources {
		for key, g := range s.endings.all {
			e := s.entries.get(key)
			// Before the peer has said what it holds, what is believed of it is a guess.
			if e != nil && !g.known && !g.accepted && !(s.phase == phaseReady && (e.satisfied() || e.missing())) {
				return true
			}
		}
	}
	return false
}
