package departures

import (
	"testing"

	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/ownership/ownershiptest"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// TestStraysOfAnotherHub: what a spoke's agent wrote where there is a hub as well is
// no mirror of that hub, though it names an agent of the same name.
func TestStraysOfAnotherHub(t *testing.T) {
	r := ownershiptest.Rules(t, stream.Spoke, stream.Managed)
	o := ownershiptest.Planned(t, r, objecttest.Apply(stream.Applications, "theirs", 5, map[string]any{"spec": map[string]any{}}), nil)
	strays := OrphanedMirrors{
		Owner:      func(string) identity.AgentName { return identity.AgentName{} },
		Registered: func(identity.AgentName) bool { return true },
	}
	if writes, _ := strays.plan(o); len(writes) != 0 {
		t.Errorf("plan() = %d writes", len(writes))
	}
}

// TestStraysSpareReleased: in a namespace that is not the agent's any more a mirror goes, and
// what was released stays.
func TestStraysSpareReleased(t *testing.T) {
	r := ownershiptest.Rules(t, stream.Hub, stream.Autonomous)
	mirror := ownershiptest.Planned(t, r, objecttest.Apply(stream.Applications, "theirs", 5, map[string]any{"spec": map[string]any{}}), nil)
	strays := OrphanedMirrors{
		Namespace: r.Namespace, Registered: func(identity.AgentName) bool { return true },
		Owner: func(string) identity.AgentName { return identity.AgentName{} }, ProjectOwner: func(string) identity.AgentName { return identity.AgentName{} },
	}
	if writes, _ := strays.plan(mirror); len(writes) == 0 {
		t.Error("a mirror stays")
	}
	mirror.SetAnnotation(record.ReleasedKey, "")
	if writes, _ := strays.plan(mirror); len(writes) != 0 {
		t.Errorf("a released one: %d writes", len(writes))
	}
}
