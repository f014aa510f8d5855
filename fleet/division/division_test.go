package division

import (
	"testing"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/fleet"
)

// All Applications are gone through only when that may change whose they are: the token in
// the status of each Agent changes every minute.
func TestTokenMakesNoOtherDivision(t *testing.T) {
	var edge v1alpha1.Agent
	edge.Name, edge.Spec.Mode = "edge-1", v1alpha1.ModeManaged
	registry := &fleet.Registry{Mapping: fleet.Mapping{ByDestination: true}}
	d := New(registry, memory.New(memory.Config{}))
	registry.Set([]v1alpha1.Agent{edge})
	d.Assign()
	before := d.assigned
	noted := edge
	noted.Status.History = &v1alpha1.AgentHistory{ID: "h", Tokens: []string{"t"}}
	registry.Set([]v1alpha1.Agent{noted})
	if moved := d.Assign(); moved != nil || d.assigned != before {
		t.Error("a token makes for another division")
	}
	registry.Set(nil)
	d.Assign()
	if d.assigned == before {
		t.Error("an Agent that goes makes for no other division")
	}
}
