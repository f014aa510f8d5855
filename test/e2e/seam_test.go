//go:build linux

package e2e

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

	"github.com/argomesh/argomesh/test/harness"
)

// teamProject makes a project of the hub for edge-1 and waits until the spoke has it. It
// ends with the test.
func (w *world) teamProject(t *testing.T, name string, more map[string]any) {
	t.Helper()
	w.hubProject(t, name, more)
	eventually(t, "the spoke has project "+name, func() error {
		return there(t.Context(), w.edge1.Resource(harness.AppProjects, harness.ArgoCDNamespace), name)
	})
}

// hubProject is such a project on the hub, whatever the spoke says to it.
func (w *world) hubProject(t *testing.T, name string, more map[string]any) {
	t.Helper()
	ctx, hub := t.Context(), w.hub.Resource(harness.AppProjects, harness.ArgoCDNamespace)
	spec := map[string]any{
		"sourceRepos": []any{"*"}, "sourceNamespaces": []any{managed},
		"destinations":             []any{map[string]any{"name": managed, "namespace": "*"}},
		"clusterResourceWhitelist": []any{map[string]any{"group": "*", "kind": "*"}},
	}
	maps.Copy(spec, more)
	create(t, hub, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": name}, "spec": spec,
	}})
	t.Cleanup(func() { _ = hub.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}) }) // it may have gone
}

// inProject is a guestbook of edge-1, synced automatically, in a project.
func (w *world) inProject(name, project string) *unstructured.Unstructured {
	app := w.guestbook(name, managed, managed)
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
	syncWindow(t, theWorld(t))
}

func syncWindow(t *testing.T, w *world) {
	t.Helper()
	ctx, hub, spoke := t.Context(), w.onHub(managed), w.onSpoke(managed)
	window := func(cluster string) map[string]any {
		return map[string]any{"syncWindows": []any{map[string]any{
			"kind": "deny", "schedule": "* * * * *", "duration": "1h", "clusters": []any{cluster},
		}}}
	}
	const frozen, open = "window-frozen", "window-open"
	w.teamProject(t, frozen, window(managed))
	w.teamProject(t, open, window(autonomous))
	create(t, hub, w.inProject(frozen, frozen))
	create(t, hub, w.inProject(open, open))
	eventually(t, "what the window is not for is synced", func() error { return healthy(ctx, hub, open) })
	eventually(t, "the spoke has looked at the other", func() error {
		return field(ctx, hub, frozen, "OutOfSync", "status", "sync", "status")
	})
	patch(t, hub, frozen, map[string]any{"operation": map[string]any{"sync": map[string]any{
		"revision": harness.Branch, "syncOptions": []any{"CreateNamespace=true"},
	}}})
	const blocked = "blocked by sync window"
	eventually(t, "the hub shows what holds a sync that was asked for", func() error {
		return says(ctx, hub, frozen, blocked, "status", "operationState", "message")
	})
	if err := gone(ctx, w.edge1.Resource(deployments, frozen), "guestbook"); err != nil {
		t.Errorf("in spite of the window: %v", err)
	}
	patch(t, w.hub.Resource(harness.AppProjects, harness.ArgoCDNamespace), frozen, map[string]any{"spec": window(autonomous)})
	eventually(t, "without the window it is synced", func() error { return healthy(ctx, hub, frozen) })
	if err := errors.Join(there(ctx, w.edge1.Resource(deployments, frozen), "guestbook"), there(ctx, spoke, frozen)); err != nil {
		t.Error(err)
	}
}

// TestSeamAdopted adopts an Application that a spoke deploys already, and gives it back. As
// it was found it would prune what runs now, so it comes back without automated sync.
func TestSeamAdopted(t *testing.T) {
	t.Parallel()
	adopted(t, theWorld(t))
}

func adopted(t *testing.T, w *world) {
	t.Helper()
	ctx, hub, spoke := t.Context(), w.onHub(managed), w.onSpoke(managed)
	const name = "settled"
	found := w.guestbook(name, harness.ArgoCDNamespace, "")
	found.SetFinalizers([]string{cascade})
	create(t, spoke, found)
	eventually(t, "the spoke deploys its own", func() error { return healthy(ctx, spoke, name) })
	ours := w.guestbook(name, managed, managed)
	ours.Object["spec"].(map[string]any)["source"].(map[string]any)["path"] = newPath
	ours.Object["spec"].(map[string]any)["syncPolicy"].(map[string]any)["automated"] = map[string]any{}
	create(t, hub, ours)
	eventually(t, "the hub says whose it is, and what allows its adoption", func() error {
		return conditionSays(ctx, hub, name, "ArgomeshError", "policy.adopt of the spoke does not name application/"+name)
	})
	before := w.workloads(t, name)

	patch(t, spoke, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"argocd.argoproj.io/adoption-policy": "always"}}})
	running := func() error {
		return errors.Join(there(ctx, w.edge1.Resource(deployments, name), "guestbook"), there(ctx, w.edge1.Resource(deployments, name), "new-guestbook"))
	}
	eventually(t, "the spoke deploys the hub's beside its own", func() error {
		return errors.Join(field(ctx, spoke, name, newPath, "spec", "source", "path"), running())
	})
	if o := get(t, spoke, name); len(o.GetFinalizers()) > 0 {
		t.Errorf("what was adopted has finalizers %v", o.GetFinalizers())
	}
	beside := get(t, w.edge1.Resource(deployments, name), "new-guestbook").GetUID()

	if err := hub.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is given back as it was found, and says so", func() error {
		return errors.Join(
			gone(ctx, hub, name),
			field(ctx, spoke, name, harness.GuestbookPath, "spec", "source", "path"),
			conditionSays(ctx, spoke, name, "ArgomeshReturned", "without automated synchronization"),
		)
	})
	patch(t, spoke, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"argocd.argoproj.io/refresh": "hard"}}})
	eventually(t, "the spoke's Argo CD compares what was found with what runs", func() error {
		return errors.Join(
			field(ctx, spoke, name, nil, "metadata", "annotations", "argocd.argoproj.io/refresh"),
			field(ctx, spoke, name, "OutOfSync", "status", "sync", "status"),
		)
	})
	o := get(t, spoke, name)
	policy, _, _ := unstructured.NestedMap(o.Object, "spec", "syncPolicy")
	if policy["automated"] != nil || o.Object["operation"] != nil || o.GetAnnotations()[sourceUID] != "" || !carriesCascade(o) {
		t.Errorf("it came back as %v", o.Object)
	}
	if after := w.workloads(t, name); !maps.Equal(before, after) {
		t.Errorf("the workloads were %v and are %v", before, after)
	}
	if o := get(t, w.edge1.Resource(deployments, name), "new-guestbook"); o.GetUID() != beside || o.GetDeletionTimestamp() != nil {
		t.Errorf("what the hub deployed is %v", o.Object["metadata"])
	}
}

// conditionSays is a check that an Application has a condition whose message has some text.
func conditionSays(ctx context.Context, where dynamic.ResourceInterface, name, kind, text string) error {
	o, err := where.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	condition := conditionIn(o, kind)
	if message, _ := condition["message"].(string); !strings.Contains(message, text) {
		return fmt.Errorf("condition %s of %s is %v", kind, name, condition)
	}
	return nil
}
