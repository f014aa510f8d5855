package fleet_test

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
)

func TestOwnerOf(t *testing.T) {
	var r fleet.Registry
	if _, owned, err := r.OwnerOf("edge-1"); err == nil || owned {
		t.Errorf("OwnerOf() before the Agents are known = %t, %v", owned, err)
	}
	now := metav1.Now()
	agents := []v1alpha1.Agent{{}, {}, {}}
	agents[0].Name = "edge-1"
	agents[1].Name, agents[1].Spec.Suspended = "edge-2", true
	agents[2].Name, agents[2].DeletionTimestamp = "edge-3", &now
	r.Set(agents)
	for namespace, want := range map[string]struct{ owned, denied bool }{
		"edge-1": {owned: true}, "edge-2": {true, true}, "edge-3": {true, true}, "argocd": {}, "": {}, "Edge_1": {},
	} {
		agent, owned, err := r.OwnerOf(namespace)
		if owned != want.owned || errors.Is(err, identity.ErrDenied) != want.denied || (err == nil) == want.denied {
			t.Errorf("OwnerOf(%q) = %t, %v", namespace, owned, err)
		}
		if owned && err == nil && agent.Name != namespace {
			t.Errorf("OwnerOf(%q) = %s", namespace, agent.Name)
		}
	}
}
