package link

import (
	"time"

	"github.com/argomesh/argomesh/stream"
)

// ending is an entry that announces its end.
type ending struct {
	uid   string    // of the source's object
	since time.Time // when it was noticed; zero until the Step that notices it ends
	// asked says that a check was asked for since, and checked that there was one.
	asked, checked bool
	doomed         string // why its namespace goes; empty when it does not
	late           bool   // it has waited for its count long enough
	accepted       bool   // someone accepted it, whatever its number and namespace
	known          bool   // the sink knows of it
}

// endings are those of one source, and of them those that were not yet noticed, and
// those that are not late, oldest first.
type endings struct {
	all   map[stream.EntryKey]*ending
	fresh []*ending
	early []*ending
}

// update keeps them after a change of e. ready says that what the sink holds is known.
func (all *endings) update(key stream.EntryKey, e *entry, ready bool) {
	if !e.leaving {
		delete(all.all, key)
		return
	}
	g := all.all[key]
	if g == nil || g.uid != e.desired.SourceUID {
		g = &ending{uid: e.desired.SourceUID}
		all.all[key] = g
		all.fresh = append(all.fresh, g)
	}
	g.known = g.known || ready && e.satisfied()
}

// noteKnown notes which ends the sink knows of, once it is known what that holds.
func (all *endings) noteKnown(entries table[*entry]) {
	for key, g := range all.all {
		if e := entries.get(key); e != nil && e.satisfied() {
			g.known = true
		}
	}
}

// notice gives the new endings their time, and reports whether there are any.
func (all *endings) notice(now time.Time) bool {
	fresh := all.fresh
	for _, g := range fresh {
		g.since = now
	}
	all.early = append(all.early, fresh...)
	all.fresh = nil
	return len(fresh) > 0
}

// ask notes that a check is asked for.
func (all *endings) ask() {
	for _, g := range all.all {
		g.asked = !g.known
	}
}

// resetChecks forgets what was found out on a connection.
func (all *endings) resetChecks() {
	for _, g := range all.all {
		g.asked, g.checked = false, false
	}
}

// heldFor says why someone has to accept an ending, where cascades is Cascades.Held; empty
// when no one has to.
func (g *ending) heldFor(cascades string) string {
	if g.known || g.accepted {
		return ""
	}
	if g.doomed != "" {
		return g.doomed
	}
	return cascades
}
