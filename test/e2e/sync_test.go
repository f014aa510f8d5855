//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/harness"
)

func TestManagedApplication(t *testing.T) {
	t.Parallel()
	w, ctx := theWorld(t), t.Context()
	hub, spoke := w.onHub(managed), w.onSpoke(managed)
	app := create(t, hub, w.guestbook("shop", managed, managed))

	eventually(t, "the spoke has it synced and healthy", func() error { return healthy(ctx, spoke, "shop") })
	eventually(t, "the hub shows it", func() error { return healthy(ctx, hub, "shop") })
	eventually(t, "argocd-server of the hub shows it", func() error {
		out, err := w.hubArgo.CLI(ctx, "app", "get", managed+"/shop", "--output", "json")
		if err != nil {
			return err
		}
		return harness.SyncedAndHealthy(out)
	})
	copied := get(t, spoke, "shop")
	if got := copied.GetAnnotations()["argocd.argoproj.io/source-uid"]; got != string(app.GetUID()) {
		t.Errorf("source UID of the copy is %q, not %q", got, app.GetUID())
	}
	if len(copied.GetFinalizers()) > 0 {
		t.Errorf("the copy carries finalizers %v", copied.GetFinalizers())
	}

	// A change of the spec and of metadata.
	patch(t, hub, "shop", map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"tier": "front"}},
		"spec":     map[string]any{"source": map[string]any{"path": newPath}},
	})
	eventually(t, "the changed spec runs", func() error {
		if err := field(ctx, spoke, "shop", "front", "metadata", "labels", "tier"); err != nil {
			return err
		}
		_, err := w.edge1.Resource(deployments, "shop").Get(ctx, "new-guestbook", metav1.GetOptions{})
		return err
	})
	eventually(t, "the hub shows the new resources", func() error {
		o, err := hub.Get(ctx, "shop", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if text := fmt.Sprint(o.Object["status"]); !strings.Contains(text, "new-guestbook") {
			return errors.New("its status names no new-guestbook")
		}
		return nil
	})

	// A local edit and a local delete on the spoke are undone.
	patch(t, spoke, "shop", map[string]any{"spec": map[string]any{"source": map[string]any{"path": "elsewhere"}}})
	eventually(t, "a local edit is reverted", func() error {
		return field(ctx, spoke, "shop", newPath, "spec", "source", "path")
	})
	if err := spoke.Delete(ctx, "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a local delete is undone", func() error {
		o, err := spoke.Get(ctx, "shop", metav1.GetOptions{})
		if err == nil && o.GetUID() == copied.GetUID() {
			return errors.New("the deleted one is still there")
		}
		return err
	})
	if _, err := w.edge1.Resource(deployments, "shop").Get(ctx, "new-guestbook", metav1.GetOptions{}); err != nil {
		t.Errorf("the workload did not survive a local delete: %v", err)
	}
	eventually(t, "the copy made anew is healthy on the hub", func() error { return healthy(ctx, hub, "shop") })
}

func TestOperation(t *testing.T) {
	t.Parallel()
	w, ctx := theWorld(t), t.Context()
	create(t, w.onHub(managed), w.plain("manual", managed, managed))
	eventually(t, "the hub shows that it is out of sync", func() error {
		return field(ctx, w.onHub(managed), "manual", "OutOfSync", "status", "sync", "status")
	})
	if out, err := w.hubArgo.CLI(ctx, "app", "sync", managed+"/manual", "--timeout", "120"); err != nil {
		t.Fatalf("argocd app sync on the hub: %v\n%s", err, out)
	}
	eventually(t, "the hub shows the operation of the spoke", func() error {
		o, err := w.onHub(managed).Get(ctx, "manual", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if o.Object["operation"] != nil {
			return errors.New("the operation is still pending")
		}
		if err := field(ctx, w.onHub(managed), "manual", "Succeeded", "status", "operationState", "phase"); err != nil {
			return err
		}
		return healthy(ctx, w.onHub(managed), "manual")
	})
	if _, err := w.edge1.Resource(configMaps, "manual").Get(ctx, "guestbook", metav1.GetOptions{}); err != nil {
		t.Errorf("the operation left nothing: %v", err)
	}
}

func TestCascadingDelete(t *testing.T) {
	t.Parallel()
	w, ctx := theWorld(t), t.Context()
	app := w.guestbook("doomed", managed, managed)
	app.SetFinalizers([]string{cascade})
	create(t, w.onHub(managed), app)
	eventually(t, "it is healthy on the hub", func() error { return healthy(ctx, w.onHub(managed), "doomed") })
	if err := w.onHub(managed).Delete(ctx, "doomed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the hub's object is gone", func() error { return gone(ctx, w.onHub(managed), "doomed") })
	// The hub lets go only when the spoke is done.
	if err := gone(ctx, w.onSpoke(managed), "doomed"); err != nil {
		t.Error(err)
	}
	if err := gone(ctx, w.edge1.Resource(deployments, "doomed"), "guestbook"); err != nil {
		t.Error(err)
	}
}

func TestDeleteWithoutCascade(t *testing.T) {
	t.Parallel()
	w, ctx := theWorld(t), t.Context()
	create(t, w.onHub(managed), w.guestbook("released", managed, managed))
	eventually(t, "it is healthy on the hub", func() error { return healthy(ctx, w.onHub(managed), "released") })
	before := get(t, w.edge1.Resource(deployments, "released"), "guestbook")
	if err := w.onHub(managed).Delete(ctx, "released", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the spoke's copy is gone", func() error { return gone(ctx, w.onSpoke(managed), "released") })
	after := get(t, w.edge1.Resource(deployments, "released"), "guestbook")
	if before.GetUID() != after.GetUID() || after.GetDeletionTimestamp() != nil {
		t.Errorf("the workload was touched: %s became %s", before.GetUID(), after.GetUID())
	}
}

func TestAutonomousApplication(t *testing.T) {
	t.Parallel()
	w, ctx := theWorld(t), t.Context()
	hub, spoke := w.onHub(autonomous), w.onSpoke(autonomous)
	app := create(t, spoke, w.guestbook("local", harness.ArgoCDNamespace, ""))
	eventually(t, "the hub shows the mirror healthy", func() error { return healthy(ctx, hub, "local") })
	eventually(t, "its project is the agent's", func() error {
		return field(ctx, hub, "local", autonomous+"-default", "spec", "project")
	})
	eventually(t, "the project is mirrored", func() error {
		return field(ctx, w.hub.Resource(harness.AppProjects, harness.ArgoCDNamespace), autonomous+"-default",
			[]any{autonomous}, "spec", "sourceNamespaces")
	})
	if out, err := w.hubArgo.CLI(ctx, "app", "get", autonomous+"/local"); err != nil {
		t.Errorf("argocd app get: %v\n%s", err, out)
	}

	patch(t, spoke, "local", map[string]any{"metadata": map[string]any{"labels": map[string]any{"team": "blue"}}})
	eventually(t, "a change arrives", func() error { return field(ctx, hub, "local", "blue", "metadata", "labels", "team") })

	patch(t, hub, "local", map[string]any{"spec": map[string]any{"source": map[string]any{"path": "elsewhere"}}})
	eventually(t, "an edit on the hub is reverted", func() error {
		return field(ctx, hub, "local", harness.GuestbookPath, "spec", "source", "path")
	})
	if err := field(ctx, spoke, "local", harness.GuestbookPath, "spec", "source", "path"); err != nil {
		t.Errorf("the hub's edit reached the spoke: %v", err)
	}

	mirror := get(t, hub, "local")
	patch(t, hub, "local", map[string]any{"metadata": map[string]any{"finalizers": []any{cascade}}})
	if err := hub.Delete(ctx, "local", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a mirror that was deleted on the hub is made anew", func() error {
		o, err := hub.Get(ctx, "local", metav1.GetOptions{})
		if err == nil && o.GetUID() == mirror.GetUID() {
			return errors.New("the deleted one is still there")
		}
		return err
	})
	if o := get(t, spoke, "local"); o.GetUID() != app.GetUID() || o.GetDeletionTimestamp() != nil {
		t.Error("the delete on the hub reached the spoke")
	}

	// An operation from the hub.
	eventually(t, "the mirror is healthy again", func() error { return healthy(ctx, hub, "local") })
	if out, err := w.hubArgo.CLI(ctx, "app", "sync", autonomous+"/local", "--timeout", "120"); err != nil {
		t.Errorf("argocd app sync of the mirror: %v\n%s", err, out)
	}

	if err := spoke.Delete(ctx, "local", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the mirror goes with the spoke's Application", func() error { return gone(ctx, hub, "local") })
	if _, err := w.edge2.Resource(deployments, "local").Get(ctx, "guestbook", metav1.GetOptions{}); err != nil {
		t.Errorf("a delete without cascade took the workload: %v", err)
	}
}

func TestAppProject(t *testing.T) {
	t.Parallel()
	w, ctx := theWorld(t), t.Context()
	hub := w.hub.Resource(harness.AppProjects, harness.ArgoCDNamespace)
	spoke := w.edge1.Resource(harness.AppProjects, harness.ArgoCDNamespace)
	create(t, hub, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": map[string]any{"name": "team", "finalizers": []any{cascade}},
		"spec": map[string]any{
			"sourceRepos": []any{"*"}, "sourceNamespaces": []any{managed},
			"destinations": []any{
				map[string]any{"name": managed, "namespace": "team-*"},
				map[string]any{"name": autonomous, "namespace": "*"},
			},
			"roles": []any{map[string]any{"name": "people", "policies": []any{"p, proj:team:people, applications, get, team/*, allow"}}},
		},
	}})
	eventually(t, "the spoke gets its share of the project", func() error {
		return field(ctx, spoke, "team",
			[]any{map[string]any{"name": "in-cluster", "namespace": "team-*", "server": "https://kubernetes.default.svc"}},
			"spec", "destinations")
	})
	if copied := get(t, spoke, "team"); copied.Object["spec"].(map[string]any)["roles"] != nil || len(copied.GetFinalizers()) > 0 {
		t.Errorf("the copy has roles or finalizers: %v", copied.Object)
	}
	if err := gone(ctx, w.edge2.Resource(harness.AppProjects, harness.ArgoCDNamespace), "team"); err != nil {
		t.Errorf("the autonomous agent got a project of the hub: %v", err)
	}

	app := w.idle("of-team", managed, managed)
	app.Object["spec"].(map[string]any)["project"] = "team"
	app.Object["spec"].(map[string]any)["destination"].(map[string]any)["namespace"] = "team-1" // which the project admits
	create(t, w.onHub(managed), app)
	eventually(t, "the Application is on the spoke", func() error { return field(ctx, w.onSpoke(managed), "of-team", "team", "spec", "project") })
	if err := hub.Delete(ctx, "team", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if o := get(t, hub, "team"); o.GetDeletionTimestamp() == nil {
		t.Error("the project is not being deleted")
	}
	if err := w.onHub(managed).Delete(ctx, "of-team", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the project goes with its last Application", func() error { return gone(ctx, hub, "team") })
	eventually(t, "and from the spoke", func() error { return gone(ctx, spoke, "team") })
}
