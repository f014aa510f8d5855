//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/harness"
)

// cascade is Argo CD's finalizer that takes workloads along.
const cascade = "resources-finalizer.argocd.argoproj.io"

// patience bounds the wait for one condition on a busy machine of two cores.
const patience = 5 * time.Minute

// eventually fails the test when the condition does not come true in time.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := harness.Eventually(ctx, what, check); err != nil {
		t.Fatal(err)
	}
}

// get returns an object that must be there.
func get(t *testing.T, where dynamic.ResourceInterface, name string) *unstructured.Unstructured {
	t.Helper()
	o, err := where.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// guestbook is an Application of the test repository, synced automatically.
func (w *world) guestbook(name, namespace, agent string) *unstructured.Unstructured {
	app := w.plain(name, namespace, agent)
	spec := app.Object["spec"].(map[string]any)
	spec["syncPolicy"] = map[string]any{
		"automated":   map[string]any{"prune": true, "selfHeal": true},
		"syncOptions": []any{"CreateNamespace=true"},
	}
	return app
}

// plain is an Application that nobody syncs by itself.
func (w *world) plain(name, namespace, agent string) *unstructured.Unstructured {
	destination := map[string]any{"name": agent, "namespace": name}
	in := project
	if agent == "" {
		destination, in = map[string]any{"server": "https://kubernetes.default.svc", "namespace": name}, "default"
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"spec": map[string]any{
			"project": in, "destination": destination,
			"source":     map[string]any{"repoURL": w.repository.URL, "path": harness.GuestbookPath, "targetRevision": harness.Branch},
			"syncPolicy": map[string]any{"syncOptions": []any{"CreateNamespace=true"}},
		},
	}}
}

// idle is an Application that Argo CD leaves alone.
func (w *world) idle(name, namespace, agent string) *unstructured.Unstructured {
	app := w.plain(name, namespace, agent)
	app.SetAnnotations(map[string]string{"argocd.argoproj.io/skip-reconcile": "true"})
	return app
}

func create(t *testing.T, where dynamic.ResourceInterface, app *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	made, err := where.Create(t.Context(), app, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func patch(t *testing.T, where dynamic.ResourceInterface, name string, merge map[string]any) {
	t.Helper()
	if err := mergePatch(t.Context(), where, name, merge); err != nil {
		t.Fatal(err)
	}
}

func mergePatch(ctx context.Context, where dynamic.ResourceInterface, name string, merge map[string]any) error {
	raw, err := json.Marshal(merge)
	if err != nil {
		return err
	}
	_, err = where.Patch(ctx, name, types.MergePatchType, raw, metav1.PatchOptions{})
	return err
}

// gone is a check that an object is not there.
func gone(ctx context.Context, where dynamic.ResourceInterface, name string) error {
	_, err := where.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%s is still there", name)
}

// field compares one field of an object.
func field(ctx context.Context, where dynamic.ResourceInterface, name string, want any, path ...string) error {
	o, err := where.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	got, _, err := unstructured.NestedFieldNoCopy(o.Object, path...)
	if err != nil {
		return err
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("%s: %v is %v, not %v", name, path, got, want)
	}
	return nil
}

// healthy is a check that an Application shows itself synced and healthy.
func healthy(ctx context.Context, where dynamic.ResourceInterface, name string) error {
	if err := field(ctx, where, name, "Synced", "status", "sync", "status"); err != nil {
		return err
	}
	return field(ctx, where, name, "Healthy", "status", "health", "status")
}

var (
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// since is when the agent's connection state last changed.
func (w *world) since(ctx context.Context, agent string) (string, error) {
	return connectedSince(ctx, w.hub, agent)
}

// connectedSince is since when a hub shows an agent connected.
func connectedSince(ctx context.Context, hub *harness.ControlPlane, agent string) (string, error) {
	a, err := hub.Resource(agents, harness.ArgoCDNamespace).Get(ctx, agent, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if up, _, _ := unstructured.NestedBool(a.Object, "status", "connected"); !up {
		return "", fmt.Errorf("agent %s is not connected", agent)
	}
	since, _, _ := unstructured.NestedString(a.Object, "status", "since")
	return since, nil
}
