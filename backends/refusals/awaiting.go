package refusals

import (
	"cmp"
	"maps"
	"slices"

	"github.com/argomesh/argomesh/stream"
)

// MaxAwaiting bounds the entries that are remembered for their AppProject, since a peer
// can invent some. One beyond is tried again as the peer tries all that is refused.
const MaxAwaiting = 1 << 16

// Awaiting are entries of the peer that were refused for want of the hub's AppProject, and
// that project. They end with the connection, on which the peer tries again.
type Awaiting struct {
	project map[stream.EntryKey]string
	entries map[string]map[stream.EntryKey]struct{} // by the project
}

// NewAwaiting returns a table of no entry.
func NewAwaiting() Awaiting {
	return Awaiting{project: map[stream.EntryKey]string{}, entries: map[string]map[stream.EntryKey]struct{}{}}
}

// Set notes which project an entry waits for; empty for none. It reports whether there was
// room.
func (a Awaiting) Set(entry stream.EntryKey, project string) bool {
	if before, waits := a.project[entry]; waits {
		if delete(a.entries[before], entry); len(a.entries[before]) == 0 {
			delete(a.entries, before)
		}
		delete(a.project, entry)
	}
	if project == "" || len(a.project) == MaxAwaiting {
		return project == ""
	}
	a.project[entry] = project
	if a.entries[project] == nil {
		a.entries[project] = map[stream.EntryKey]struct{}{}
	}
	a.entries[project][entry] = struct{}{}
	return true
}

// Waits reports whether any entry waits for a project.
func (a Awaiting) Waits(project string) bool { return len(a.entries[project]) > 0 }

// Of are the entries that wait for a project, in order.
func (a Awaiting) Of(project string) []stream.EntryKey {
	return slices.SortedFunc(maps.Keys(a.entries[project]),
		func(a, b stream.EntryKey) int { return cmp.Compare(a.String(), b.String()) })
}

// Size is how many entries wait, and for how many projects.
func (a Awaiting) Size() (entries, projects int) { return len(a.project), len(a.entries) }
