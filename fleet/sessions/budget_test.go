package sessions

import (
	"strings"
	"testing"
	"time"

	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/fleet/agentwatch"
	"github.com/argomesh/argomesh/stream"
)

// Anyone who reads the Agent learns what waits, for what, and how to raise it.
func TestOverBudgetSaysHowToRaiseIt(t *testing.T) {
	for over, want := range map[budget.Over]string{
		budget.OverWrites: "spec.limits.writesPerSecond",
		budget.OverBytes:  "spec.limits.bytesPerSecond",
		budget.OverCommon: "limits.bytes_per_second",
	} {
		got := overBudget(mirror.Stats{Over: over, Delayed: 3})
		if got == nil || !strings.Contains(got.Message, want) {
			t.Errorf("%s: %+v, want %s named", over, got, want)
		}
	}
	parked := map[stream.EntryKey]stream.Refusal{{Name: "a"}: {Kind: stream.RefusalOverLimit}, {Name: "b"}: {Kind: stream.RefusalInvalid}}
	if got := overBudget(mirror.Stats{Parked: parked}); got == nil || got.Reason != "Objects" {
		t.Errorf("an object over its limit: %+v", got)
	}
	if got := overBudget(mirror.Stats{}); got != nil {
		t.Errorf("within all: %+v", got)
	}
}

// A principal that starts goes on with what the status says, and one that lives does not
// gain by it.
func TestLevelsSurviveInTheStatus(t *testing.T) {
	now := time.Now()
	full := func() *budget.Peer { return budget.NewPeer("edge-1", budget.DefaultLimits(), nil, now) }
	if said := LeftOf(full(), now); said != nil || agentwatch.LevelsOf(said) != (budget.Levels{}) {
		t.Errorf("of a full one the status says %+v", said)
	}
	used := full()
	used.Charge(now, 0, 19_001, 60<<20)
	said := LeftOf(used, now)
	next := full()
	next.Lower(agentwatch.LevelsOf(said), now)
	if got, want := next.Levels(now), used.Levels(now); got != want {
		t.Errorf("the next principal goes on with %+v, want %+v", got, want)
	}
	used.Charge(now, 0, 501, 1<<20)
	want := used.Levels(now)
	used.Lower(agentwatch.LevelsOf(said), now)
	if got := used.Levels(now); got != want {
		t.Errorf("by its own status of before it has %+v, and had %+v", got, want)
	}
}
