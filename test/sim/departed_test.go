package sim

import (
	"slices"
	"testing"

	"github.com/argomesh/argomesh/stream"
)

// Each case is the deletion of an Agent, and what it breaks.
func TestCheckDepartures(t *testing.T) {
	original := thing{uid: "h", spec: "1"}
	copied := thing{uid: "s", source: "h", spec: "1", revision: 1}
	going := original
	going.cascade, going.deleting = true, true
	away := original
	away.elsewhere = true
	free := original
	free.deleting = true
	mirrored := thing{uid: "m", source: "o", spec: "1", revision: 1}
	departs := func(agent string, cascade bool) Entry {
		return Entry{Place: agent, Note: Departs, On: cascade, Deleted: "2026-01-01T00:00:00Z"}
	}
	departed := func(agent string) Entry { return Entry{Place: agent, Note: Departed} }
	settled := Entry{Place: hubPlace, Note: Settled}
	start := func() *logbook {
		return newLogbook().put(hubPlace, "far", People, original).put("far", "far", AgentSide, copied)
	}
	mirror := func() *logbook {
		return newLogbook().put("free", "free", People, thing{uid: "o", spec: "1"}).put(hubPlace, "free", Principal, mirrored)
	}
	gone := copied
	gone.cascade, gone.deleting = true, true
	for name, c := range map[string]struct {
		log  *logbook
		want []string
	}{
		"the hub and the spoke keep what they have": {log: start().note(departs("far", false)).note(departed("far")).note(settled)},
		"the hub deletes its own":                   {start().note(departs("far", false)).put(hubPlace, "far", Principal, going), []string{"I4"}},
		"the agent deletes a copy":                  {start().note(departs("far", false)).drop("far", "far", AgentSide, copied), []string{"I4"}},
		"a deletion of before is let go": {log: start().put(hubPlace, "far", People, going).note(departs("far", false)).
			drop(hubPlace, "far", Principal, free).note(departed("far")).note(settled)},
		"a deletion of before waits for ever": {
			start().put(hubPlace, "far", People, going).note(departs("far", false)).note(departed("far")).note(settled), []string{"I8"},
		},
		"the Agent stays": {start().note(departs("far", false)).note(settled), []string{"I8"}},
		"a cascade takes both": {log: start().note(departs("far", true)).put(hubPlace, "far", Principal, going).put("far", "far", AgentSide, gone).
			drop("far", "far", Controller, copied).drop(hubPlace, "far", Principal, free).note(departed("far")).note(settled)},
		"a cascade leaves what went elsewhere and came back": {log: start().note(departs("far", true)).put(hubPlace, "far", People, away).
			put(hubPlace, "far", People, original).note(departed("far"))},
		"a cascade leaves what came back before": {
			start().put(hubPlace, "far", People, away).put(hubPlace, "far", People, original).note(departs("far", true)).note(departed("far")), []string{"I8"},
		},
		"a cascade leaves the hub's": {start().note(departs("far", true)).note(departed("far")), []string{"I8"}},
		"a cascade ends before the spoke is done": {start().note(departs("far", true)).put(hubPlace, "far", Principal, going).
			drop(hubPlace, "far", Principal, free).note(departed("far")), []string{"I4"}},
		"a cascade that waits for a person": {log: start().note(departs("far", true)).
			note(Entry{Place: "far", Note: Knows, Side: stream.Hub, Held: 1}).note(settled)},
		"a mirror leaves the hub": {log: mirror().note(departs("free", false)).drop(hubPlace, "free", Principal, mirrored).note(departed("free")).note(settled)},
		"a mirror stays":          {mirror().note(departs("free", false)).note(departed("free")), []string{"I8"}},
		"a mirror goes, and nobody deletes the Agent": {
			mirror().drop(hubPlace, "free", Principal, mirrored), []string{"I4"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			log := c.log.log
			if n := len(log.Entries); log.Entries[n-1].Note == Settled { // the other agent's is not what this is about
				log.Agents = slices.DeleteFunc(log.Agents, func(a Agent) bool {
					return !slices.ContainsFunc(log.Entries, func(e Entry) bool { return e.Note == Departs && e.Place == a.Name })
				})
			}
			broken := Check(log)
			for _, v := range broken {
				got = append(got, v.Invariant)
			}
			slices.Sort(got)
			if got = slices.Compact(got); !slices.Equal(got, c.want) {
				t.Errorf("Check() = %v, want %v:\n%s", got, c.want, describe(broken))
			}
		})
	}
}
