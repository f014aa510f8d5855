//go:build linux

package e2e

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/harness"
)

// TestChildApplicationsByDestination: children of two spokes that have one name are both
// shown, what keeps one from being shown is told, and the mirrors go with what asked for them.
func TestChildApplicationsByDestination(t *testing.T) {
	t.Parallel()
	w, ctx := theQuietWorld(t), t.Context()
	const in = "kids"
	if err := w.hub.EnsureNamespace(ctx, in); err != nil {
		t.Fatal(err)
	}
	at := func(plane *harness.ControlPlane, namespace string) dynamic.ResourceInterface {
		return plane.Resource(harness.Applications, namespace)
	}
	principal := w.mappedPrincipal(t, in, harness.Settings{"mapping.by": "destination"})
	registry := w.hub.Resource(agents, in)
	for _, name := range []string{"kids-1", "kids-2"} {
		w.mappedAgent(t, in, name, principal, harness.Settings{"mapping.namespaces": []string{"kids-team"}})
		patch(t, registry, name, map[string]any{"spec": map[string]any{"childApplications": "mirror"}})
	}
	if err := w.spoke.EnsureNamespace(ctx, "kids-team"); err != nil {
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
	create(t, at(w.spoke, "kids-1"), application("child"))
	create(t, at(w.spoke, "kids-2"), application("child"))
	create(t, at(w.spoke, "kids-team"), application("apart"))
	eventually(t, "both children are shown, each where its agent's are", func() error {
		return errors.Join(
			field(ctx, at(w.hub, "kids-1"), "child", "kids-1", "spec", "destination", "name"),
			field(ctx, at(w.hub, "kids-2"), "child", "kids-2", "spec", "destination", "name"), gone(ctx, at(w.hub, in), "child"),
		)
	})
	eventually(t, "what Argo CD of the hub needs is told", func() error {
		return condition(ctx, registry, "kids-1", "ChildApplications", "NotShownByArgoCD", "does not name kids-1")
	})
	eventually(t, "those elsewhere are told", func() error {
		return condition(ctx, registry, "kids-1", "ChildApplications", "NotShownByArgoCD", "kids-team/apart")
	})
	patch(t, registry, "kids-1", map[string]any{"spec": map[string]any{"childApplications": "ignore"}})
	eventually(t, "the hub shows none of kids-1", func() error { return gone(ctx, at(w.hub, "kids-1"), "child") })
	if err := there(ctx, at(w.hub, "kids-2"), "child"); err != nil {
		t.Error(err)
	}
	if out, err := w.h.Agentctl(ctx, w.hub, "agent", "delete", "kids-2", "--orphan", "--yes", "--namespace", in); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, "the mirrors of an Agent go with it", func() error { return gone(ctx, at(w.hub, "kids-2"), "child") })
	for _, name := range []string{"kids-1", "kids-2"} {
		o, err := at(w.spoke, name).Get(ctx, "child", metav1.GetOptions{})
		if err != nil || o.GetDeletionTimestamp() != nil || o.GetAnnotations()[sourceUID] != "" {
			t.Errorf("the child of %s was touched: %v, %v", name, o, err)
		}
	}
}
