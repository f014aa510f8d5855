package fleet_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
)

// The name of a mirror is that of the agent with the longest name that fits.
func TestProjectsAreOfTheLongestName(t *testing.T) {
	agent := func(name string, mode v1alpha1.AgentMode) v1alpha1.Agent {
		a := v1alpha1.Agent{}
		a.Name = name
		a.Spec.Mode = mode
		return a
	}
	var r fleet.Registry
	r.Set([]v1alpha1.Agent{
		agent("edge", v1alpha1.ModeAutonomous), agent("edge-1", v1alpha1.ModeAutonomous), agent("edge-1-b", v1alpha1.ModeAutonomous),
		agent("edge-2", v1alpha1.ModeManaged), agent("edges", v1alpha1.ModeAutonomous),
	})
	for mirror, want := range map[string]string{
		"edge-web": "edge", "edge-1-web": "edge-1", "edge-1-b-web": "edge-1-b", "edge-1-bb": "edge-1", "edge-1-": "edge", "edge-1": "edge",
		"edge-2-web": "edge", "edges-web": "edges", "edge": "", "other-web": "", "-edge": "", "edge--x": "edge",
	} {
		if got := r.ProjectOwner(mirror).String(); got != want {
			t.Errorf("ProjectOwner(%q) = %q, want %q", mirror, got, want)
		}
	}
	longer := map[string][]string{}
	for _, text := range []string{"edge", "edge-1", "edge-1-b", "edge-2", "edges"} {
		name, err := identity.ParseAgentName(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range r.Longer(name) {
			longer[text] = append(longer[text], l.String())
		}
	}
	if diff := cmp.Diff(map[string][]string{"edge": {"edge-1", "edge-1-b"}, "edge-1": {"edge-1-b"}}, longer); diff != "" {
		t.Errorf("Longer() (-want +got)\n%s", diff)
	}
}
