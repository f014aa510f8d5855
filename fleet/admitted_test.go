package fleet_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
)

// Anyone who is among the admitted is admitted, and no one else.
func TestAdmittedIsWhoIsAdmitted(t *testing.T) {
	var r fleet.Registry
	if got := r.Admitted(); len(got) > 0 {
		t.Errorf("Admitted() before Set = %v", got)
	}
	suspended := agent("suspended", 0, "/suspended")
	suspended.Spec.Suspended = true
	agents := []v1alpha1.Agent{
		agent("younger", 1, "/shared", "/suspended", "/younger"), agent("older", 0, "/older", "/shared"), suspended,
		agent("robbed", 2, "/older"), agent("nobody", 0),
		deleting("orphaning", v1alpha1.ModeManaged, v1alpha1.DeletionOrphan),
		deleting("cascading", v1alpha1.ModeManaged, v1alpha1.DeletionCascade),
	}
	r.Set(agents)
	got := map[spiffeid.ID]identity.AgentName{}
	for name, ids := range r.Admitted() {
		if len(ids) == 0 {
			t.Errorf("agent %s is there without a SPIFFE ID", name)
		}
		for _, id := range ids {
			got[id] = name
		}
	}
	want := map[spiffeid.ID]identity.AgentName{}
	for _, a := range agents {
		for _, text := range a.Spec.Identity.SPIFFEIDs {
			id := spiffeid.RequireFromString(text)
			if admitted, err := r.Admit(identity.Peer{ID: id}); err == nil {
				want[id] = admitted.Name
			}
		}
	}
	if diff := cmp.Diff(texts(want), texts(got)); diff != "" {
		t.Errorf("Admitted() (-want +got):\n%s", diff)
	}
	if len(want) != 4 { // of younger one, of older two, and that of cascading
		t.Errorf("%d SPIFFE IDs are admitted, want 4: the cases are not what they should be", len(want))
	}
}

func texts(owners map[spiffeid.ID]identity.AgentName) []string {
	var out []string
	for id, name := range owners {
		out = append(out, id.String()+" "+name.String())
	}
	return slices.Sorted(slices.Values(out))
}
