//go:build linux && matrix

package sync

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// TestReleases has spokes with other releases of Argo CD, controllers and all, do what is
// decided where our objects meet it.
func TestReleases(t *testing.T) {
	t.Parallel()
	for _, release := range harness.Releases() {
		t.Run(release, func(t *testing.T) {
			harnesstest.SkipMissing(t, "argocd-"+release)
			w := env.NewPool(1, env.StartArgo(env.Releases{ArgoCD: release})).TakeAlone(t).Get(t)
			t.Run("fields of the newest release", func(t *testing.T) { newestFields(t, w) })
			seam(t, w)
		})
	}
}

// TestKubernetesReleases is TestReleases of hub and spokes with other releases of Kubernetes.
func TestKubernetesReleases(t *testing.T) {
	t.Parallel()
	for _, release := range harness.KubernetesReleases() {
		t.Run(release, func(t *testing.T) {
			harnesstest.SkipMissing(t, "kube-apiserver-"+release)
			w := env.NewPool(1, env.StartArgo(env.Releases{Kubernetes: release})).TakeAlone(t).Get(t)
			runs, err := w.Hub.Version()
			if err != nil || runs != release {
				t.Fatalf("the hub has Kubernetes %s (%v), want %s", runs, err, release)
			}
			seam(t, w)
		})
	}
}

// seam does what is decided where our objects meet Argo CD.
func seam(t *testing.T, w *env.Argo) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, *env.Argo){
		"a sync window of the hub": syncWindow,
		"an adopted Application":   adopted,
		"delete hooks":             releaseWithHooks,
		"a confirmed deletion":     confirmedDeletion,
		"a cascade that was lost":  lostCascade,
		"a project of what goes":   projectOfWhatGoes,
		"a mirror":                 mirrored,
	} {
		t.Run(name, func(t *testing.T) { test(t, w) })
	}
}

// newestFields sends fields of the newest release. What the spoke's does not know is told
// where it restrains nothing, and refused where it does.
func newestFields(t *testing.T, w *env.Argo) {
	ctx, hub := t.Context(), w.OnHub(env.Managed)
	registry := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace)
	const name, strict = "newest", "newest-strict"
	teamProject(t, w, name, nil)
	app := inProject(w, name, name)
	app.Object["spec"].(map[string]any)["source"].(map[string]any)["tagPrefix"] = "v"
	env.Create(t, hub, app)
	env.Eventually(t, "the spoke deploys what it knows, and the hub says what it does not", func() error {
		return errors.Join(env.Healthy(ctx, hub, name), env.ConditionSays(ctx, hub, name, "ArgomeshWarning", "spec.source.tagPrefix"))
	})
	env.Patch(t, hub, name, map[string]any{"spec": map[string]any{"syncPolicy": map[string]any{"automated": map[string]any{"enabled": false}}}})
	env.Eventually(t, "a restraint that it knows is there", func() error {
		return env.FieldIs(ctx, w.OnSpoke(env.Managed), name, false, "spec", "syncPolicy", "automated", "enabled")
	})

	projects := w.Hub.Resource(harness.AppProjects, harness.ArgoCDNamespace)
	env.Create(t, projects, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": strict},
		"spec": map[string]any{
			"sourceRepos": []any{"*"}, "sourceNamespaces": []any{env.Managed},
			"destinations": []any{map[string]any{"name": env.Managed, "namespace": "*"}},
			"sourceIntegrity": map[string]any{"git": map[string]any{"policies": []any{map[string]any{
				"repos": []any{map[string]any{"url": "*"}}, "gpg": map[string]any{"mode": "strict", "keys": []any{"4AEE18F83AFDEB23"}},
			}}}},
		},
	}})
	t.Cleanup(func() { _ = projects.Delete(context.WithoutCancel(ctx), strict, metav1.DeleteOptions{}) }) // it is of this test
	env.Eventually(t, "the Agent says what is refused", func() error {
		o, err := registry.Get(ctx, env.Managed, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if status := fmt.Sprint(o.Object["status"]); !strings.Contains(status, "does not know spec.sourceIntegrity") {
			return errors.New(status)
		}
		return nil
	})
	if err := env.Gone(ctx, w.Edge1.Resource(harness.AppProjects, harness.ArgoCDNamespace), strict); err != nil {
		t.Error(err)
	}
}

// mirrored shows an Application of an autonomous spoke on the hub, and deletes it there.
func mirrored(t *testing.T, w *env.Argo) {
	ctx, hub, spoke := t.Context(), w.OnHub(env.Autonomous), w.OnSpoke(env.Autonomous)
	const name = "shown"
	env.Create(t, spoke, w.Guestbook(name, harness.ArgoCDNamespace, ""))
	env.Eventually(t, "the hub shows it", func() error { return env.Healthy(ctx, hub, name) })
	env.Patch(t, hub, name, map[string]any{"operation": map[string]any{"sync": map[string]any{"revision": harness.Branch}}})
	env.Eventually(t, "a sync that the hub asked for is done", func() error {
		return errors.Join(
			env.FieldIs(ctx, spoke, name, nil, "operation"), env.FieldIs(ctx, hub, name, nil, "operation"),
			env.FieldIs(ctx, hub, name, "Succeeded", "status", "operationState", "phase"),
		)
	})
	if err := spoke.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "it is shown no more", func() error { return env.Gone(ctx, hub, name) })
}
