package ownership

import (
	"testing"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// A spoke takes no name of a project from an agent whose own name is longer, whatever it
// calls its project, and leaves what is there alone.
func TestProjectNamesOfALongerAgent(t *testing.T) {
	edge := ruleSet(t, stream.Hub, stream.Autonomous)
	longer, err := identity.ParseAgentName("edge-1-b")
	if err != nil {
		t.Fatal(err)
	}
	edge.Longer = []identity.AgentName{longer}
	e := objecttest.Apply(stream.AppProjects, "p-1", 4, m{"spec": m{}})
	e.Key.Name = "b-default"
	key, ok := edge.Local(e.Key)
	if !ok || key.Name != "edge-1-b-default" {
		t.Fatalf("Local() = %v, %v", key, ok)
	}
	of := edge
	of.Agent, of.Longer = longer, nil
	theirs := objecttest.Apply(stream.AppProjects, "p-2", 5, m{"spec": m{}})
	theirs.Key.Name = "default"
	made, refusal := of.Plan(theirs, key, nil, operations.Requests{})
	if refusal != nil || len(made) != 1 || made[0].Op != Create {
		t.Fatalf("the project of the longer name: %v, %v", made, refusal)
	}
	fields, err := object.Decode(made[0].Raw)
	if err != nil {
		t.Fatal(err)
	}
	mirror := object.Object{Key: key, Fields: fields}
	for what, current := range map[string]*object.Object{"nothing": nil, "the mirror of the other": &mirror} {
		writes, refusal := edge.Plan(e, key, current, operations.Requests{})
		if len(writes) != 0 || refusal == nil || refusal.Kind != stream.RefusalNotOwned {
			t.Errorf("over %s: Plan() = %v, %v, want it refused as another's", what, writes, refusal)
		}
		gone := e
		gone.Verb = stream.Delete
		if writes, _ := edge.Plan(gone, key, current, operations.Requests{}); len(writes) != 0 {
			t.Errorf("over %s: a deletion writes %v", what, writes)
		}
	}
	if keys := edge.Keys(key); len(keys) != 0 {
		t.Errorf("Keys() = %v, want none of an object that is another agent's", keys)
	}
	own := key
	own.Name = "edge-1-bb"
	if keys := edge.Keys(own); len(keys) != 1 || keys[0].Name != "bb" {
		t.Errorf("Keys() = %v of a project of its own", keys)
	}
}
