package project_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/project"
	hubstate "github.com/argomesh/argomesh/fleet/hub"
)

func TestLacks(t *testing.T) {
	t.Parallel()
	with := func(destination map[string]any, sources ...any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"destinations": []any{destination}, "sourceNamespaces": sources},
		}}
	}
	for name, c := range map[string]struct {
		there *unstructured.Unstructured
		by    hubstate.Mapping
		lacks string
	}{
		"one that is made, by destination": {project.For("p", "argocd", "edge-1", hubstate.ByDestination), hubstate.ByDestination, ""},
		"one that is made, by namespace":   {project.For("p", "argocd", "edge-1", hubstate.ByNamespace), hubstate.ByNamespace, ""},
		"made for the other mapping":       {project.For("p", "argocd", "edge-1", hubstate.ByDestination), hubstate.ByNamespace, "namespace edge-1"},
		"a glob":                           {with(map[string]any{"name": "edge-*"}), hubstate.ByDestination, ""},
		"another agent's":                  {with(map[string]any{"name": "edge-2"}), hubstate.ByDestination, "a destination with name edge-1"},
		"the hub's own cluster":            {with(map[string]any{"server": "https://kubernetes.default.svc"}), hubstate.ByDestination, "a destination with name edge-1"},
		"namespaces by a glob":             {with(map[string]any{"name": "*"}, "edge-*"), hubstate.ByNamespace, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := project.Lacks(c.there, "edge-1", c.by)
			if !strings.HasPrefix(got, c.lacks) || c.lacks == "" && got != "" {
				t.Errorf("it lacks %q, want %q", got, c.lacks)
			}
		})
	}
}

func TestAdopts(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]bool{"appproject/default": true, "appproject/*": true, "appproject/other": false, "[": false} {
		if got := project.Adopts([]any{pattern}); got != want {
			t.Errorf("Adopts(%q) = %t", pattern, got)
		}
	}
}
