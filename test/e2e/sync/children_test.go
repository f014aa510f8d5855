//go:build linux

package sync

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// TestChildApplicationsByDestination: children of two spokes that have one name are both
// shown, what keeps one from being shown is told, and the mirrors go with what asked for them.
func TestChildApplicationsByDestination(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedBare(t), t.Context()
	const in = "kids"
	if err := w.Hub.EnsureNamespace(ctx, in); err != nil {
		t.Fatal(err)
	}
	at := func(plane *harness.ControlPlane, namespace string) dynamic.ResourceInterface {
		return plane.Resource(harness.Applications, namespace)
	}
	principal := w.MappedPrincipal(t, in, harness.Settings{"mapping.by": "destination"})
	registry := w.Hub.Resource(env.Agents, in)
	for _, name := range []string{"kids-1", "kids-2"} {
		w.MappedAgent(t, in, name, principal, harness.Settings{"mapping.namespaces": []string{"kids-team"}})
		env.Patch(t, registry, name, map[string]any{"spec": map[string]any{"childApplications": "mirror"}})
	}
	if err := w.Spoke.EnsureNamespace(ctx, "kids-team"); err != nil {
		t.Fatal(err)
	}
	application := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": name},
			"spec": map[string]any{
				"project": "default", "destination": map[string]any{"name": "in-cluster", "namespace": "default"},
				"source": map[string]any{"repoURL": "https://git.example.com/r.git", "path": ".", "targetRevision": "1"},
			},
		}}
	}
	env.Create(t, at(w.Spoke, "kids-1"), application("child"))
	env.Create(t, at(w.Spoke, "kids-2"), application("child"))
	env.Create(t, at(w.Spoke, "kids-team"), application("apart"))
	env.Eventually(t, "both children are shown, each where its agent's are", func() error {
		return errors.Join(
			env.FieldIs(ctx, at(w.Hub, "kids-1"), "child", "kids-1", "spec", "destination", "name"),
			env.FieldIs(ctx, at(w.Hub, "kids-2"), "child", "kids-2", "spec", "destination", "name"), env.Gone(ctx, at(w.Hub, in), "child"),
		)
	})
	env.Eventually(t, "what Argo CD of the hub needs is told", func() error {
		return env.ConditionIs(ctx, registry, "kids-1", "ChildApplications", "NotShownByArgoCD", "does not name kids-1")
	})
	env.Eventually(t, "those elsewhere are told", func() error {
		return env.ConditionIs(ctx, registry, "kids-1", "ChildApplications", "NotShownByArgoCD", "kids-team/apart")
	})
	env.Patch(t, registry, "kids-1", map[string]any{"spec": map[string]any{"childApplications": "ignore"}})
	env.Eventually(t, "the hub shows none of kids-1", func() error { return env.Gone(ctx, at(w.Hub, "kids-1"), "child") })
	if err := env.Exists(ctx, at(w.Hub, "kids-2"), "child"); err != nil {
		t.Error(err)
	}
	if out, err := w.Harness.Agentctl(ctx, w.Hub, "agent", "delete", "kids-2", "--orphan", "--yes", "--namespace", in); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	env.Eventually(t, "the mirrors of an Agent go with it", func() error { return env.Gone(ctx, at(w.Hub, "kids-2"), "child") })
	for _, name := range []string{"kids-1", "kids-2"} {
		o, err := at(w.Spoke, name).Get(ctx, "child", metav1.GetOptions{})
		if err != nil || o.GetDeletionTimestamp() != nil || o.GetAnnotations()[env.SourceUID] != "" {
			t.Errorf("the child of %s was touched: %v, %v", name, o, err)
		}
	}
}
