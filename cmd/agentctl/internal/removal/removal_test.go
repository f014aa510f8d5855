package removal_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/removal"
)

func TestLines(t *testing.T) {
	t.Parallel()
	object := func(kind, name string, annotations map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"kind": kind, "metadata": map[string]any{"name": name, "annotations": annotations},
		}}
	}
	got := removal.Removal{
		Chart: charts.Agent, Version: "1.2.3", Namespace: "argocd", Around: []string{"Deployment x restarts"},
		Objects: []*unstructured.Unstructured{
			object("Service", "b", nil), object("CustomResourceDefinition", "agents", map[string]any{"helm.sh/resource-policy": "keep"}),
			object("Role", "a", map[string]any{"helm.sh/resource-policy": "else"}), object("Service", "a", nil), object("Role", "a", nil),
		},
	}.Lines()
	want := []string{
		"argomesh-agent 1.2.3 will be removed from namespace argocd:", "  Role a", "  Service a, b", "Deployment x restarts",
		"these stay:", "  CustomResourceDefinition agents", "  Applications and their workloads, and Argo CD",
		`  the Agent on the hub: "agentctl agent delete"`, `  what is registered with SPIRE: "agentctl identity revoke"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Lines() (-want +got):\n%s", diff)
	}
}
