package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// Of four Applications the third that is to go with its workloads waits for a person, and a
// principal that starts over goes on so.
func TestHolds(t *testing.T) {
	t.Parallel()
	for name, accept := range map[string]bool{"nobody accepts": false, "a person accepts": true} {
		t.Run(name, func(t *testing.T) {
			trace := Trace{Seed: 1, Holds: true, Agents: []Agent{{Name: "far", Mode: stream.Managed}}}
			add := func(wait time.Duration, c Command) {
				c.N, c.Seed, c.Wait = len(trace.Commands)+1, uint64(len(trace.Commands)), wait
				trace.Commands = append(trace.Commands, c)
			}
			apps := []string{"a", "b", "c", "stays"}
			for _, app := range apps {
				add(time.Second, Command{Verb: Edit, Place: "far", App: app, Cascade: true})
			}
			add(0, Command{Verb: Pause, For: 6 * time.Minute})
			for _, app := range apps[:3] {
				add(time.Second, Command{Verb: Remove, Place: "far", App: app, Cascade: true})
			}
			add(10*time.Second, Command{Verb: Kill, Place: hubPlace})
			if accept {
				add(time.Second, Command{Verb: Accept, Place: "far"})
			}
			log := logOf(t, trace)
			if broken := Check(log); len(broken) > 0 {
				t.Fatal(describe(broken))
			}
			gone := slices.ContainsFunc(log.Entries, func(e Entry) bool { return e.Place == "far" && e.Key.Name == "c" && e.Gone })
			if gone != accept {
				t.Errorf("the workloads went: %t, want %t", gone, accept)
			}
		})
	}
}
