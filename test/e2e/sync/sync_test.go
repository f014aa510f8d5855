//go:build linux

package sync

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

func TestManagedApplication(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedArgo(t), t.Context()
	hub, spoke := w.OnHub(env.Managed), w.OnSpoke(env.Managed)
	app := env.Create(t, hub, w.Guestbook("shop", env.Managed, env.Managed))

	env.Eventually(t, "the spoke has it synced and healthy", func() error { return env.Healthy(ctx, spoke, "shop") })
	env.Eventually(t, "the hub shows it", func() error { return env.Healthy(ctx, hub, "shop") })
	env.Eventually(t, "argocd-server of the hub shows it", func() error {
		out, err := w.HubArgo.CLI(ctx, "app", "get", env.Managed+"/shop", "--output", "json")
		if err != nil {
			return err
		}
		return harness.SyncedAndHealthy(out)
	})
	copied := env.Get(t, spoke, "shop")
	if got := copied.GetAnnotations()["argocd.argoproj.io/source-uid"]; got != string(app.GetUID()) {
		t.Errorf("source UID of the copy is %q, not %q", got, app.GetUID())
	}
	if len(copied.GetFinalizers()) > 0 {
		t.Errorf("the copy carries finalizers %v", copied.GetFinalizers())
	}

	// A change of the spec and of metadata.
	env.Patch(t, hub, "shop", map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"tier": "front"}},
		"spec":     map[string]any{"source": map[string]any{"path": env.NewPath}},
	})
	env.Eventually(t, "the changed spec runs", func() error {
		if err := env.FieldIs(ctx, spoke, "shop", "front", "metadata", "labels", "tier"); err != nil {
			return err
		}
		_, err := w.Edge1.Resource(env.Deployments, "shop").Get(ctx, "new-guestbook", metav1.GetOptions{})
		return err
	})
	env.Eventually(t, "the hub shows the new resources", func() error {
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
	env.Patch(t, spoke, "shop", map[string]any{"spec": map[string]any{"source": map[string]any{"path": "elsewhere"}}})
	env.Eventually(t, "a local edit is reverted", func() error {
		return env.FieldIs(ctx, spoke, "shop", env.NewPath, "spec", "source", "path")
	})
	if err := spoke.Delete(ctx, "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "a local delete is undone", func() error {
		o, err := spoke.Get(ctx, "shop", metav1.GetOptions{})
		if err == nil && o.GetUID() == copied.GetUID() {
			return errors.New("the deleted one is still there")
		}
		return err
	})
	if _, err := w.Edge1.Resource(env.Deployments, "shop").Get(ctx, "new-guestbook", metav1.GetOptions{}); err != nil {
		t.Errorf("the workload did not survive a local delete: %v", err)
	}
	env.Eventually(t, "the copy made anew is healthy on the hub", func() error { return env.Healthy(ctx, hub, "shop") })
}

func TestOperation(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedArgo(t), t.Context()
	env.Create(t, w.OnHub(env.Managed), w.Plain("manual", env.Managed, env.Managed))
	env.Eventually(t, "the hub shows that it is out of sync", func() error {
		return env.FieldIs(ctx, w.OnHub(env.Managed), "manual", "OutOfSync", "status", "sync", "status")
	})
	if out, err := w.HubArgo.CLI(ctx, "app", "sync", env.Managed+"/manual", "--timeout", "120"); err != nil {
		t.Fatalf("argocd app sync on the hub: %v\n%s", err, out)
	}
	env.Eventually(t, "the hub shows the operation of the spoke", func() error {
		o, err := w.OnHub(env.Managed).Get(ctx, "manual", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if o.Object["operation"] != nil {
			return errors.New("the operation is still pending")
		}
		if err := env.FieldIs(ctx, w.OnHub(env.Managed), "manual", "Succeeded", "status", "operationState", "phase"); err != nil {
			return err
		}
		return env.Healthy(ctx, w.OnHub(env.Managed), "manual")
	})
	if _, err := w.Edge1.Resource(env.ConfigMaps, "manual").Get(ctx, "guestbook", metav1.GetOptions{}); err != nil {
		t.Errorf("the operation left nothing: %v", err)
	}
}

func TestCascadingDelete(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedArgo(t), t.Context()
	app := w.Guestbook("doomed", env.Managed, env.Managed)
	app.SetFinalizers([]string{env.Cascade})
	env.Create(t, w.OnHub(env.Managed), app)
	env.Eventually(t, "it is healthy on the hub", func() error { return env.Healthy(ctx, w.OnHub(env.Managed), "doomed") })
	if err := w.OnHub(env.Managed).Delete(ctx, "doomed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the hub's object is gone", func() error { return env.Gone(ctx, w.OnHub(env.Managed), "doomed") })
	// The hub lets go only when the spoke is done.
	if err := env.Gone(ctx, w.OnSpoke(env.Managed), "doomed"); err != nil {
		t.Error(err)
	}
	if err := env.Gone(ctx, w.Edge1.Resource(env.Deployments, "doomed"), "guestbook"); err != nil {
		t.Error(err)
	}
}

func TestDeleteWithoutCascade(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedArgo(t), t.Context()
	env.Create(t, w.OnHub(env.Managed), w.Guestbook("released", env.Managed, env.Managed))
	env.Eventually(t, "it is healthy on the hub", func() error { return env.Healthy(ctx, w.OnHub(env.Managed), "released") })
	before := env.Get(t, w.Edge1.Resource(env.Deployments, "released"), "guestbook")
	if err := w.OnHub(env.Managed).Delete(ctx, "released", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the spoke's copy is gone", func() error { return env.Gone(ctx, w.OnSpoke(env.Managed), "released") })
	after := env.Get(t, w.Edge1.Resource(env.Deployments, "released"), "guestbook")
	if before.GetUID() != after.GetUID() || after.GetDeletionTimestamp() != nil {
		t.Errorf("the workload was touched: %s became %s", before.GetUID(), after.GetUID())
	}
}

func TestAutonomousApplication(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedArgo(t), t.Context()
	hub, spoke := w.OnHub(env.Autonomous), w.OnSpoke(env.Autonomous)
	app := env.Create(t, spoke, w.Guestbook("local", harness.ArgoCDNamespace, ""))
	env.Eventually(t, "the hub shows the mirror healthy", func() error { return env.Healthy(ctx, hub, "local") })
	env.Eventually(t, "its project is the agent's", func() error {
		return env.FieldIs(ctx, hub, "local", env.Autonomous+"-default", "spec", "project")
	})
	env.Eventually(t, "the project is mirrored", func() error {
		return env.FieldIs(ctx, w.Hub.Resource(harness.AppProjects, harness.ArgoCDNamespace), env.Autonomous+"-default",
			[]any{env.Autonomous}, "spec", "sourceNamespaces")
	})
	if out, err := w.HubArgo.CLI(ctx, "app", "get", env.Autonomous+"/local"); err != nil {
		t.Errorf("argocd app get: %v\n%s", err, out)
	}

	env.Patch(t, spoke, "local", map[string]any{"metadata": map[string]any{"labels": map[string]any{"team": "blue"}}})
	env.Eventually(t, "a change arrives", func() error { return env.FieldIs(ctx, hub, "local", "blue", "metadata", "labels", "team") })

	env.Patch(t, hub, "local", map[string]any{"spec": map[string]any{"source": map[string]any{"path": "elsewhere"}}})
	env.Eventually(t, "an edit on the hub is reverted", func() error {
		return env.FieldIs(ctx, hub, "local", harness.GuestbookPath, "spec", "source", "path")
	})
	if err := env.FieldIs(ctx, spoke, "local", harness.GuestbookPath, "spec", "source", "path"); err != nil {
		t.Errorf("the hub's edit reached the spoke: %v", err)
	}

	mirror := env.Get(t, hub, "local")
	env.Patch(t, hub, "local", map[string]any{"metadata": map[string]any{"finalizers": []any{env.Cascade}}})
	if err := hub.Delete(ctx, "local", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "a mirror that was deleted on the hub is made anew", func() error {
		o, err := hub.Get(ctx, "local", metav1.GetOptions{})
		if err == nil && o.GetUID() == mirror.GetUID() {
			return errors.New("the deleted one is still there")
		}
		return err
	})
	if o := env.Get(t, spoke, "local"); o.GetUID() != app.GetUID() || o.GetDeletionTimestamp() != nil {
		t.Error("the delete on the hub reached the spoke")
	}

	// An operation from the hub.
	env.Eventually(t, "the mirror is healthy again", func() error { return env.Healthy(ctx, hub, "local") })
	if out, err := w.HubArgo.CLI(ctx, "app", "sync", env.Autonomous+"/local", "--timeout", "120"); err != nil {
		t.Errorf("argocd app sync of the mirror: %v\n%s", err, out)
	}

	if err := spoke.Delete(ctx, "local", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the mirror goes with the spoke's Application", func() error { return env.Gone(ctx, hub, "local") })
	if _, err := w.Edge2.Resource(env.Deployments, "local").Get(ctx, "guestbook", metav1.GetOptions{}); err != nil {
		t.Errorf("a delete without cascade took the workload: %v", err)
	}
}

func TestAppProject(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedArgo(t), t.Context()
	hub := w.Hub.Resource(harness.AppProjects, harness.ArgoCDNamespace)
	spoke := w.Edge1.Resource(harness.AppProjects, harness.ArgoCDNamespace)
	env.Create(t, hub, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": map[string]any{"name": "team", "finalizers": []any{env.Cascade}},
		"spec": map[string]any{
			"sourceRepos": []any{"*"}, "sourceNamespaces": []any{env.Managed},
			"destinations": []any{
				map[string]any{"name": env.Managed, "namespace": "team-*"},
				map[string]any{"name": env.Autonomous, "namespace": "*"},
			},
			"roles": []any{map[string]any{"name": "people", "policies": []any{"p, proj:team:people, applications, get, team/*, allow"}}},
		},
	}})
	env.Eventually(t, "the spoke gets its share of the project", func() error {
		return env.FieldIs(ctx, spoke, "team",
			[]any{map[string]any{"name": "in-cluster", "namespace": "team-*", "server": "https://kubernetes.default.svc"}},
			"spec", "destinations")
	})
	if copied := env.Get(t, spoke, "team"); copied.Object["spec"].(map[string]any)["roles"] != nil || len(copied.GetFinalizers()) > 0 {
		t.Errorf("the copy has roles or finalizers: %v", copied.Object)
	}
	if err := env.Gone(ctx, w.Edge2.Resource(harness.AppProjects, harness.ArgoCDNamespace), "team"); err != nil {
		t.Errorf("the autonomous agent got a project of the hub: %v", err)
	}

	app := w.Idle("of-team", env.Managed, env.Managed)
	app.Object["spec"].(map[string]any)["project"] = "team"
	app.Object["spec"].(map[string]any)["destination"].(map[string]any)["namespace"] = "team-1" // which the project admits
	env.Create(t, w.OnHub(env.Managed), app)
	env.Eventually(t, "the Application is on the spoke", func() error { return env.FieldIs(ctx, w.OnSpoke(env.Managed), "of-team", "team", "spec", "project") })
	if err := hub.Delete(ctx, "team", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if o := env.Get(t, hub, "team"); o.GetDeletionTimestamp() == nil {
		t.Error("the project is not being deleted")
	}
	if err := w.OnHub(env.Managed).Delete(ctx, "of-team", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the project goes with its last Application", func() error { return env.Gone(ctx, hub, "team") })
	env.Eventually(t, "and from the spoke", func() error { return env.Gone(ctx, spoke, "team") })
}
