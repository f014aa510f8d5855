// Package ownershiptest makes rules, and copies that follow them, for tests of packages above.
package ownershiptest

import (
	"testing"

	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// Rules are those of one side of the link of agent edge-1.
func Rules(t testing.TB, side stream.Side, mode stream.Mode) ownership.Rules {
	t.Helper()
	agent, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	r := ownership.Rules{Marks: copies.Marks{Map: mapping.Map{Side: side, Mode: mode, Agent: agent, Namespace: "argocd"}}}
	if side == stream.Hub {
		r.ClusterServer = "https://proxy:9090/agents/edge-1"
	} else {
		r.HubUID = "hub-1"
	}
	return r
}

// Planned returns what a store holds after it carried out the last write with content that
// the rules plan for an event. current is nil when there was nothing.
func Planned(t testing.TB, r ownership.Rules, e stream.Event, current *object.Object) object.Object {
	t.Helper()
	key, ok := r.Local(e.Key)
	if !ok {
		t.Fatalf("%s is not local", e.Key)
	}
	writes, refusal := r.Plan(e, key, current, operations.Requests{})
	if refusal != nil {
		t.Fatalf("Plan() = %+v", refusal)
	}
	for i := len(writes) - 1; i >= 0; i-- {
		if writes[i].Op != ownership.Create && writes[i].Op != ownership.Update {
			continue
		}
		fields, err := object.Decode(writes[i].Raw)
		if err != nil {
			t.Fatal(err)
		}
		o := object.Object{Key: key, Fields: fields}
		if o.UID() == "" {
			o.Ensure("metadata")["uid"] = "copy-1"
		}
		o.Ensure("metadata")["resourceVersion"] = "70"
		return o
	}
	t.Fatal("the plan writes nothing")
	return object.Object{}
}
