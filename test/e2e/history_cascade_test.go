//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/harness"
)

const postDelete = "post-delete-finalizer.argocd.argoproj.io"

// TestHistoryConfirmedDeletion deletes an Application of which a resource asks for a
// confirmation, and confirms it at the hub. An agent that leaves a copy alone once it is
// being deleted lets both sides wait for ever.
func TestHistoryConfirmedDeletion(t *testing.T) {
	t.Parallel()
	confirmedDeletion(t, theWorld(t))
}

func confirmedDeletion(t *testing.T, w *world) {
	t.Helper()
	ctx := t.Context()
	const name, precious = "confirmed", "precious"
	files := harness.GuestbookFiles()
	files[harness.GuestbookPath+"/precious.yaml"] = `apiVersion: v1
kind: ConfigMap
metadata:
  name: ` + precious + `
  annotations: {argocd.argoproj.io/sync-options: Delete=confirm}
`
	repository, err := w.h.NewRepository(ctx, "confirmed", files)
	if err != nil {
		t.Fatal(err)
	}
	hub, spoke := w.onHub(managed), w.onSpoke(managed)
	app := w.cascading(name)
	app.Object["spec"].(map[string]any)["source"].(map[string]any)["repoURL"] = repository.URL
	create(t, hub, app)
	eventually(t, "it is healthy on the hub", func() error { return healthy(ctx, hub, name) })
	eventually(t, "the spoke's Argo CD knows that it has to ask", func() error {
		resources, _, err := unstructured.NestedSlice(get(t, spoke, name).Object, "status", "resources")
		if err == nil && !slices.ContainsFunc(resources, func(r any) bool {
			resource, _ := r.(map[string]any)
			return resource["name"] == precious && resource["requiresDeletionConfirmation"] == true
		}) {
			err = fmt.Errorf("resources %v", resources)
		}
		return err
	})
	if err := hub.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the copy is being deleted", func() error { return deletionBegun(spoke.Get(ctx, name, metav1.GetOptions{})) })
	w.fence(t, "confirmed-fence")
	if o := get(t, w.edge1.Resource(configMaps, name), precious); o.GetDeletionTimestamp() != nil {
		t.Error("it was deleted before anybody confirmed that")
	}
	if out, err := w.hubArgo.CLI(ctx, "app", "confirm-deletion", managed+"/"+name); err != nil {
		t.Fatalf("argocd app confirm-deletion: %v\n%s", err, out)
	}
	eventually(t, "the hub's object goes", func() error { return gone(ctx, hub, name) })
	if err := errors.Join(gone(ctx, spoke, name), gone(ctx, w.edge1.Resource(configMaps, name), precious)); err != nil {
		t.Errorf("the hub's object went first: %v", err)
	}
}

// TestHistoryLostCascade writes the finalizers of a copy as Argo CD's controller does, by a
// patch of all of them without a resourceVersion: before the copy is deleted, which is made
// good, and after it, which takes the copy away. An agent that asks no more than whether
// the copy is there says that its workloads are gone.
func TestHistoryLostCascade(t *testing.T) {
	t.Parallel()
	lostCascade(t, theWorld(t))
}

func lostCascade(t *testing.T, w *world) {
	t.Helper()
	const name = "lost-cascade"
	app := w.idle(name, managed, managed)
	app.SetFinalizers([]string{cascade})
	create(t, w.onHub(managed), app)
	eventually(t, "the copy is there", func() error { return there(t.Context(), w.onSpoke(managed), name) })
	w.loseCascade(t, name)
	w.letGo(t, name)
}

// loseCascade deletes an Application that Argo CD leaves alone, and has its cascade be lost.
func (w *world) loseCascade(t *testing.T, name string) {
	t.Helper()
	ctx, hub, spoke := t.Context(), w.onHub(managed), w.onSpoke(managed)
	write := func(finalizers ...any) {
		t.Helper()
		patch(t, spoke, name, map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
	}
	write(postDelete)
	if err := hub.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the copy has its cascade finalizer", func() error {
		o, err := spoke.Get(ctx, name, metav1.GetOptions{})
		if err == nil && !carriesCascade(o) {
			err = fmt.Errorf("finalizers %v", o.GetFinalizers())
		}
		return err
	})
	write(postDelete)
	eventually(t, "the copy is being deleted", func() error { return deletionBegun(spoke.Get(ctx, name, metav1.GetOptions{})) })
	if o := get(t, spoke, name); !carriesCascade(o) {
		t.Fatalf("it is being deleted with finalizers %v", o.GetFinalizers())
	}
	write()
	if err := gone(ctx, spoke, name); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the hub says that its workloads may still run", func() error {
		conditions, _, err := unstructured.NestedSlice(get(t, hub, name).Object, "status", "conditions")
		if err == nil && !slices.ContainsFunc(conditions, func(c any) bool {
			condition, _ := c.(map[string]any)
			return condition["type"] == "ArgomeshDeletionError"
		}) {
			err = fmt.Errorf("conditions %v", conditions)
		}
		return err
	})
}

// letGo has a person let an Application of the hub go without its workloads.
func (w *world) letGo(t *testing.T, name string) {
	t.Helper()
	if out, err := w.agentctl(t, "agent", "keep-workloads", managed, name, "--yes"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, "a person lets it go", func() error { return gone(t.Context(), w.onHub(managed), name) })
}

// TestHistoryLostCascadeAgain goes the other way on: the Application whose cascade was lost
// is made again, finds its workloads, and takes them along when it is deleted again.
func TestHistoryLostCascadeAgain(t *testing.T) {
	t.Parallel()
	w, ctx := theWorld(t), t.Context()
	const name = "lost-again"
	hub, spoke, workloads := w.onHub(managed), w.onSpoke(managed), w.edge1.Resource(deployments, name)
	begin := func() {
		t.Helper()
		app := w.guestbook(name, managed, managed)
		app.SetFinalizers([]string{cascade})
		create(t, hub, app)
		eventually(t, "it is healthy on the hub", func() error { return healthy(ctx, hub, name) })
	}
	const skip = "argocd.argoproj.io/skip-reconcile"
	begin()
	running := get(t, workloads, "guestbook")
	patch(t, hub, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{skip: "true"}}})
	eventually(t, "Argo CD leaves the copy alone", func() error { return field(ctx, spoke, name, "true", "metadata", "annotations", skip) })
	w.loseCascade(t, name)
	w.letGo(t, name)

	begin()
	if now := get(t, workloads, "guestbook"); now.GetUID() != running.GetUID() || now.GetDeletionTimestamp() != nil {
		t.Error("the workloads were deleted")
	}
	if err := hub.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the hub's object is gone", func() error { return gone(ctx, hub, name) })
	if err := errors.Join(gone(ctx, spoke, name), gone(ctx, workloads, "guestbook")); err != nil {
		t.Errorf("the second deletion: %v", err)
	}
}

// TestHistoryProjectOfWhatGoes takes an AppProject from the agent while the spoke deletes
// an Application of it. Without the project Argo CD cannot come to an end.
func TestHistoryProjectOfWhatGoes(t *testing.T) {
	t.Parallel()
	projectOfWhatGoes(t, theWorld(t))
}

func projectOfWhatGoes(t *testing.T, w *world) {
	t.Helper()
	ctx := t.Context()
	const name = "leaver"
	hub, spoke := w.onHub(managed), w.onSpoke(managed)
	hubProjects, spokeProjects := w.hub.Resource(harness.AppProjects, harness.ArgoCDNamespace), w.edge1.Resource(harness.AppProjects, harness.ArgoCDNamespace)
	create(t, hubProjects, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": map[string]any{"name": name, "namespace": harness.ArgoCDNamespace},
		"spec": map[string]any{
			"sourceRepos": []any{"*"}, "sourceNamespaces": []any{managed},
			"destinations":             []any{map[string]any{"name": managed, "namespace": "*"}},
			"clusterResourceWhitelist": []any{map[string]any{"group": "*", "kind": "*"}},
		},
	}})
	app := w.cascading(name)
	app.Object["spec"].(map[string]any)["project"] = name
	create(t, hub, app)
	eventually(t, "it is healthy on the hub", func() error { return healthy(ctx, hub, name) })
	release := w.hold(t, name)
	if err := hub.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the spoke deletes the workloads", func() error {
		return deletionBegun(w.edge1.Resource(deployments, name).Get(ctx, "guestbook", metav1.GetOptions{}))
	})
	before := get(t, spokeProjects, name).Object["spec"]
	if err := hubProjects.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.fence(t, "leaver-fence")
	if after := get(t, spokeProjects, name); after.GetDeletionTimestamp() != nil || !reflect.DeepEqual(before, after.Object["spec"]) {
		t.Errorf("the project was %v and is %v", before, after.Object)
	}
	release()
	eventually(t, "both objects and the project go", func() error {
		return errors.Join(gone(ctx, hub, name), gone(ctx, spoke, name), gone(ctx, spokeProjects, name))
	})
	if err := gone(ctx, w.edge1.Resource(deployments, name), "guestbook"); err != nil {
		t.Error(err)
	}
}
