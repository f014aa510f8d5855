//go:build linux

package sync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// teamProject makes a project of the hub for edge-1 and waits until the spoke has it. It
// ends with the test.
func teamProject(t *testing.T, w *env.Argo, name string, more map[string]any) {
	t.Helper()
	hubProject(t, w, name, more)
	env.Eventually(t, "the spoke has project "+name, func() error {
		return env.Exists(t.Context(), w.Edge1.Resource(harness.AppProjects, harness.ArgoCDNamespace), name)
	})
}

// hubProject is such a project on the hub, whatever the spoke says to it.
func hubProject(t *testing.T, w *env.Argo, name string, more map[string]any) {
	t.Helper()
	ctx, hub := t.Context(), w.Hub.Resource(harness.AppProjects, harness.ArgoCDNamespace)
	spec := map[string]any{
		"sourceRepos": []any{"*"}, "sourceNamespaces": []any{env.Managed},
		"destinations":             []any{map[string]any{"name": env.Managed, "namespace": "*"}},
		"clusterResourceWhitelist": []any{map[string]any{"group": "*", "kind": "*"}},
	}
	maps.Copy(spec, more)
	env.Create(t, hub, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": name}, "spec": spec,
	}})
	t.Cleanup(func() { _ = hub.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) }) // it may have gone
}

// inProject is a guestbook of edge-1, synced automatically, in a project.
func inProject(w *env.Argo, name, project string) *unstructured.Unstructured {
	app := w.Guestbook(name, env.Managed, env.Managed)
	app.Object["spec"].(map[string]any)["project"] = project
	return app
}

// says is a check that a field of text contains some text.
func says(ctx context.Context, where dynamic.ResourceInterface, name, text string, path ...string) error {
	o, err := where.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if got, _, _ := unstructured.NestedString(o.Object, path...); !strings.Contains(got, text) {
		return fmt.Errorf("%s of %s is %q", strings.Join(path, "."), name, got)
	}
	return nil
}

// TestSeamSyncWindow freezes a spoke by a window of a project of the hub, which names the
// spoke as the hub does. A window for another spoke freezes nothing here. A copy that named
// a cluster which the spoke does not know would let everything pass.
func TestSeamSyncWindow(t *testing.T) {
	t.Parallel()
	syncWindow(t, env.SharedArgo(t))
}

func syncWindow(t *testing.T, w *env.Argo) {
	t.Helper()
	ctx, hub, spoke := t.Context(), w.OnHub(env.Managed), w.OnSpoke(env.Managed)
	window := func(cluster string) map[string]any {
		return map[string]any{"syncWindows": []any{map[string]any{
			"kind": "deny", "schedule": "* * * * *", "duration": "1h", "clusters": []any{cluster},
		}}}
	}
	const frozen, open = "window-frozen", "window-open"
	teamProject(t, w, frozen, window(env.Managed))
	teamProject(t, w, open, window(env.Autonomous))
	env.Create(t, hub, inProject(w, frozen, frozen))
	env.Create(t, hub, inProject(w, open, open))
	env.Eventually(t, "what the window is not for is synced", func() error { return env.Healthy(ctx, hub, open) })
	env.Eventually(t, "the spoke has looked at the other", func() error {
		return env.FieldIs(ctx, hub, frozen, "OutOfSync", "status", "sync", "status")
	})
	env.Patch(t, hub, frozen, map[string]any{"operation": map[string]any{"sync": map[string]any{
		"revision": harness.Branch, "syncOptions": []any{"CreateNamespace=true"},
	}}})
	const blocked = "blocked by sync window"
	env.Eventually(t, "the hub shows what holds a sync that was asked for", func() error {
		return says(ctx, hub, frozen, blocked, "status", "operationState", "message")
	})
	if err := env.Gone(ctx, w.Edge1.Resource(env.Deployments, frozen), "guestbook"); err != nil {
		t.Errorf("in spite of the window: %v", err)
	}
	env.Patch(t, w.Hub.Resource(harness.AppProjects, harness.ArgoCDNamespace), frozen, map[string]any{"spec": window(env.Autonomous)})
	env.Eventually(t, "without the window it is synced", func() error { return env.Healthy(ctx, hub, frozen) })
	if err := errors.Join(env.Exists(ctx, w.Edge1.Resource(env.Deployments, frozen), "guestbook"), env.Exists(ctx, spoke, frozen)); err != nil {
		t.Error(err)
	}
}

// TestSeamAdopted adopts an Application that a spoke deploys already, and gives it back. As
// it was found it would prune what runs now, so it comes back without automated sync.
func TestSeamAdopted(t *testing.T) {
	t.Parallel()
	adopted(t, env.SharedArgo(t))
}

func adopted(t *testing.T, w *env.Argo) {
	t.Helper()
	ctx, hub, spoke := t.Context(), w.OnHub(env.Managed), w.OnSpoke(env.Managed)
	const name = "settled"
	found := w.Guestbook(name, harness.ArgoCDNamespace, "")
	found.SetFinalizers([]string{env.Cascade})
	env.Create(t, spoke, found)
	env.Eventually(t, "the spoke deploys its own", func() error { return env.Healthy(ctx, spoke, name) })
	ours := w.Guestbook(name, env.Managed, env.Managed)
	ours.Object["spec"].(map[string]any)["source"].(map[string]any)["path"] = env.NewPath
	ours.Object["spec"].(map[string]any)["syncPolicy"].(map[string]any)["automated"] = map[string]any{}
	env.Create(t, hub, ours)
	env.Eventually(t, "the hub says whose it is, and what allows its adoption", func() error {
		return env.ConditionSays(ctx, hub, name, "ArgomeshError", "policy.adopt of the spoke does not name application/"+name)
	})
	before := workloads(t, w, name)

	env.Patch(t, spoke, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"argocd.argoproj.io/adoption-policy": "always"}}})
	running := func() error {
		return errors.Join(env.Exists(ctx, w.Edge1.Resource(env.Deployments, name), "guestbook"), env.Exists(ctx, w.Edge1.Resource(env.Deployments, name), "new-guestbook"))
	}
	env.Eventually(t, "the spoke deploys the hub's beside its own", func() error {
		return errors.Join(env.FieldIs(ctx, spoke, name, env.NewPath, "spec", "source", "path"), running())
	})
	if o := env.Get(t, spoke, name); len(o.GetFinalizers()) > 0 {
		t.Errorf("what was adopted has finalizers %v", o.GetFinalizers())
	}
	beside := env.Get(t, w.Edge1.Resource(env.Deployments, name), "new-guestbook").GetUID()

	if err := hub.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "it is given back as it was found, and says so", func() error {
		return errors.Join(
			env.Gone(ctx, hub, name),
			env.FieldIs(ctx, spoke, name, harness.GuestbookPath, "spec", "source", "path"),
			env.ConditionSays(ctx, spoke, name, "ArgomeshReturned", "without automated synchronization"),
		)
	})
	env.Patch(t, spoke, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"argocd.argoproj.io/refresh": "hard"}}})
	env.Eventually(t, "the spoke's Argo CD compares what was found with what runs", func() error {
		return errors.Join(
			env.FieldIs(ctx, spoke, name, nil, "metadata", "annotations", "argocd.argoproj.io/refresh"),
			env.FieldIs(ctx, spoke, name, "OutOfSync", "status", "sync", "status"),
		)
	})
	o := env.Get(t, spoke, name)
	policy, _, _ := unstructured.NestedMap(o.Object, "spec", "syncPolicy")
	if policy["automated"] != nil || o.Object["operation"] != nil || o.GetAnnotations()[env.SourceUID] != "" || !env.CarriesCascade(o) {
		t.Errorf("it came back as %v", o.Object)
	}
	if after := workloads(t, w, name); !maps.Equal(before, after) {
		t.Errorf("the workloads were %v and are %v", before, after)
	}
	if o := env.Get(t, w.Edge1.Resource(env.Deployments, name), "new-guestbook"); o.GetUID() != beside || o.GetDeletionTimestamp() != nil {
		t.Errorf("what the hub deployed is %v", o.Object["metadata"])
	}
}
