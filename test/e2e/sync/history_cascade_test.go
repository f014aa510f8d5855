//go:build linux

package sync

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

const postDelete = "post-delete-finalizer.argocd.argoproj.io"

// TestHistoryConfirmedDeletion deletes an Application of which a resource asks for a
// confirmation, and confirms it at the hub. An agent that leaves a copy alone once it is
// being deleted lets both sides wait for ever.
func TestHistoryConfirmedDeletion(t *testing.T) {
	t.Parallel()
	confirmedDeletion(t, env.SharedArgo(t))
}

func confirmedDeletion(t *testing.T, w *env.Argo) {
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
	repository, err := w.Harness.NewRepository(ctx, "confirmed", files)
	if err != nil {
		t.Fatal(err)
	}
	hub, spoke := w.OnHub(env.Managed), w.OnSpoke(env.Managed)
	app := cascading(w, name)
	app.Object["spec"].(map[string]any)["source"].(map[string]any)["repoURL"] = repository.URL
	env.Create(t, hub, app)
	env.Eventually(t, "it is healthy on the hub", func() error { return env.Healthy(ctx, hub, name) })
	env.Eventually(t, "the spoke's Argo CD knows that it has to ask", func() error {
		resources, _, err := unstructured.NestedSlice(env.Get(t, spoke, name).Object, "status", "resources")
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
	env.Eventually(t, "the copy is being deleted", func() error { return deletionBegun(spoke.Get(ctx, name, metav1.GetOptions{})) })
	fence(t, w, "confirmed-fence")
	if o := env.Get(t, w.Edge1.Resource(env.ConfigMaps, name), precious); o.GetDeletionTimestamp() != nil {
		t.Error("it was deleted before anybody confirmed that")
	}
	if out, err := w.HubArgo.CLI(ctx, "app", "confirm-deletion", env.Managed+"/"+name); err != nil {
		t.Fatalf("argocd app confirm-deletion: %v\n%s", err, out)
	}
	env.Eventually(t, "the hub's object goes", func() error { return env.Gone(ctx, hub, name) })
	if err := errors.Join(env.Gone(ctx, spoke, name), env.Gone(ctx, w.Edge1.Resource(env.ConfigMaps, name), precious)); err != nil {
		t.Errorf("the hub's object went first: %v", err)
	}
}

// TestHistoryLostCascade writes the finalizers of a copy as Argo CD's controller does, by a
// patch of all of them without a resourceVersion: before the copy is deleted, which is made
// good, and after it, which takes the copy away. An agent that asks no more than whether
// the copy is there says that its workloads are gone.
func TestHistoryLostCascade(t *testing.T) {
	t.Parallel()
	lostCascade(t, env.SharedArgo(t))
}

func lostCascade(t *testing.T, w *env.Argo) {
	t.Helper()
	const name = "lost-cascade"
	app := w.Idle(name, env.Managed, env.Managed)
	app.SetFinalizers([]string{env.Cascade})
	env.Create(t, w.OnHub(env.Managed), app)
	env.Eventually(t, "the copy is there", func() error { return env.Exists(t.Context(), w.OnSpoke(env.Managed), name) })
	loseCascade(t, w, name)
	letGo(t, w, name)
}

// loseCascade deletes an Application that Argo CD leaves alone, and has its cascade be lost.
func loseCascade(t *testing.T, w *env.Argo, name string) {
	t.Helper()
	ctx, hub, spoke := t.Context(), w.OnHub(env.Managed), w.OnSpoke(env.Managed)
	write := func(finalizers ...any) {
		t.Helper()
		env.Patch(t, spoke, name, map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
	}
	write(postDelete)
	if err := hub.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the copy has its cascade finalizer", func() error {
		o, err := spoke.Get(ctx, name, metav1.GetOptions{})
		if err == nil && !env.CarriesCascade(o) {
			err = fmt.Errorf("finalizers %v", o.GetFinalizers())
		}
		return err
	})
	write(postDelete)
	env.Eventually(t, "the copy is being deleted", func() error { return deletionBegun(spoke.Get(ctx, name, metav1.GetOptions{})) })
	if o := env.Get(t, spoke, name); !env.CarriesCascade(o) {
		t.Fatalf("it is being deleted with finalizers %v", o.GetFinalizers())
	}
	write()
	if err := env.Gone(ctx, spoke, name); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the hub says that its workloads may still run", func() error {
		conditions, _, err := unstructured.NestedSlice(env.Get(t, hub, name).Object, "status", "conditions")
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
func letGo(t *testing.T, w *env.Argo, name string) {
	t.Helper()
	if out, err := agentctl(t, w, "agent", "keep-workloads", env.Managed, name, "--yes"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	env.Eventually(t, "a person lets it go", func() error { return env.Gone(t.Context(), w.OnHub(env.Managed), name) })
}

// TestHistoryLostCascadeAgain goes the other way on: the Application whose cascade was lost
// is made again, finds its workloads, and takes them along when it is deleted again.
func TestHistoryLostCascadeAgain(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedArgo(t), t.Context()
	const name = "lost-again"
	hub, spoke, workloads := w.OnHub(env.Managed), w.OnSpoke(env.Managed), w.Edge1.Resource(env.Deployments, name)
	begin := func() {
		t.Helper()
		app := w.Guestbook(name, env.Managed, env.Managed)
		app.SetFinalizers([]string{env.Cascade})
		env.Create(t, hub, app)
		env.Eventually(t, "it is healthy on the hub", func() error { return env.Healthy(ctx, hub, name) })
	}
	const skip = "argocd.argoproj.io/skip-reconcile"
	begin()
	running := env.Get(t, workloads, "guestbook")
	env.Patch(t, hub, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{skip: "true"}}})
	env.Eventually(t, "Argo CD leaves the copy alone", func() error { return env.FieldIs(ctx, spoke, name, "true", "metadata", "annotations", skip) })
	loseCascade(t, w, name)
	letGo(t, w, name)

	begin()
	if now := env.Get(t, workloads, "guestbook"); now.GetUID() != running.GetUID() || now.GetDeletionTimestamp() != nil {
		t.Error("the workloads were deleted")
	}
	if err := hub.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the hub's object is gone", func() error { return env.Gone(ctx, hub, name) })
	if err := errors.Join(env.Gone(ctx, spoke, name), env.Gone(ctx, workloads, "guestbook")); err != nil {
		t.Errorf("the second deletion: %v", err)
	}
}

// TestHistoryProjectOfWhatGoes takes an AppProject from the agent while the spoke deletes
// an Application of it. Without the project Argo CD cannot come to an end.
func TestHistoryProjectOfWhatGoes(t *testing.T) {
	t.Parallel()
	projectOfWhatGoes(t, env.SharedArgo(t))
}

func projectOfWhatGoes(t *testing.T, w *env.Argo) {
	t.Helper()
	ctx := t.Context()
	const name = "leaver"
	hub, spoke := w.OnHub(env.Managed), w.OnSpoke(env.Managed)
	hubProjects, spokeProjects := w.Hub.Resource(harness.AppProjects, harness.ArgoCDNamespace), w.Edge1.Resource(harness.AppProjects, harness.ArgoCDNamespace)
	env.Create(t, hubProjects, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": map[string]any{"name": name, "namespace": harness.ArgoCDNamespace},
		"spec": map[string]any{
			"sourceRepos": []any{"*"}, "sourceNamespaces": []any{env.Managed},
			"destinations":             []any{map[string]any{"name": env.Managed, "namespace": "*"}},
			"clusterResourceWhitelist": []any{map[string]any{"group": "*", "kind": "*"}},
		},
	}})
	app := cascading(w, name)
	app.Object["spec"].(map[string]any)["project"] = name
	env.Create(t, hub, app)
	env.Eventually(t, "it is healthy on the hub", func() error { return env.Healthy(ctx, hub, name) })
	release := hold(t, w, name)
	if err := hub.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the spoke deletes the workloads", func() error {
		return deletionBegun(w.Edge1.Resource(env.Deployments, name).Get(ctx, "guestbook", metav1.GetOptions{}))
	})
	before := env.Get(t, spokeProjects, name).Object["spec"]
	if err := hubProjects.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	fence(t, w, "leaver-fence")
	if after := env.Get(t, spokeProjects, name); after.GetDeletionTimestamp() != nil || !reflect.DeepEqual(before, after.Object["spec"]) {
		t.Errorf("the project was %v and is %v", before, after.Object)
	}
	release()
	env.Eventually(t, "both objects and the project go", func() error {
		return errors.Join(env.Gone(ctx, hub, name), env.Gone(ctx, spoke, name), env.Gone(ctx, spokeProjects, name))
	})
	if err := env.Gone(ctx, w.Edge1.Resource(env.Deployments, name), "guestbook"); err != nil {
		t.Error(err)
	}
}
