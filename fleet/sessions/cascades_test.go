package sessions

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/cascades"
)

// What an Agent keeps is what was counted.
func TestCascadesAreKept(t *testing.T) {
	at := time.Date(2026, 11, 23, 6, 0, 0, 0, time.Local)
	for name, state := range map[string]cascades.State{
		"nothing": {},
		"all":     {Held: "many", Accepted: at, Gone: []cascades.GoneCount{{At: at, Asked: 3}, {At: at.Add(time.Minute), Others: 2}}},
	} {
		if diff := cmp.Diff(state, StateOf(cascadesOf(state))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff(cascades.State{}, StateOf(nil)); diff != "" {
		t.Errorf("of an Agent that keeps nothing:\n%s", diff)
	}
}
