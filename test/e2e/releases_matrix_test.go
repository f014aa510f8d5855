//go:build linux && matrix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
			w := newWorlds(1, startWorld(release)).takeAlone(t).get(t)
			for name, test := range map[string]func(*testing.T, *world){
				"fields of the newest release": newestFields,
				"a sync window of the hub":     syncWindow,
				"an adopted Application":       adopted,
				"delete hooks":                 releaseWithHooks,
				"a confirmed deletion":         confirmedDeletion,
				"a cascade that was lost":      lostCascade,
				"a project of what goes":       projectOfWhatGoes,
				"a mirror":                     mirrored,
			} {
				t.Run(name, func(t *testing.T) { test(t, w) })
			}
		})
	}
}

// newestFields sends fields of the newest release. What the spoke's does not know is told
// where it restrains nothing, and refused where it does.
func newestFields(t *testing.T, w *world) {
	ctx, hub := t.Context(), w.onHub(managed)
	registry := w.hub.Resource(agents, harness.ArgoCDNamespace)
	const name, strict = "newest", "newest-strict"
	w.teamProject(t, name, nil)
	app := w.inProject(name, name)
	app.Object["spec"].(map[string]any)["source"].(map[string]any)["tagPrefix"] = "v"
	create(t, hub, app)
	eventually(t, "the spoke deploys what it knows, and the hub says what it does not", func() error {
		return errors.Join(healthy(ctx, hub, name), conditionSays(ctx, hub, name, "ArgomeshWarning", "spec.source.tagPrefix"))
	})
	patch(t, hub, name, map[string]any{"spec": map[string]any{"syncPolicy": map[string]any{"automated": map[string]any{"enabled": false}}}})
	eventually(t, "a restraint that it knows is there", func() error {
		return field(ctx, w.onSpoke(managed), name, false, "spec", "syncPolicy", "automated", "enabled")
	})

	projects := w.hub.Resource(harness.AppProjects, harness.ArgoCDNamespace)
	create(t, projects, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": strict},
		"spec": map[string]any{
			"sourceRepos": []any{"*"}, "sourceNamespaces": []any{managed},
			"destinations": []any{map[string]any{"name": managed, "namespace": "*"}},
			"sourceIntegrity": map[string]any{"git": map[string]any{"policies": []any{map[string]any{
				"repos": []any{map[string]any{"url": "*"}}, "gpg": map[string]any{"mode": "strict", "keys": []any{"4AEE18F83AFDEB23"}},
			}}}},
		},
	}})
	t.Cleanup(func() { _ = projects.Delete(context.WithoutCancel(ctx), strict, metav1.DeleteOptions{}) }) // it is of this test
	eventually(t, "the Agent says what is refused", func() error {
		o, err := registry.Get(ctx, managed, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if status := fmt.Sprint(o.Object["status"]); !strings.Contains(status, "does not know spec.sourceIntegrity") {
			return errors.New(status)
		}
		return nil
	})
	if err := gone(ctx, w.edge1.Resource(harness.AppProjects, harness.ArgoCDNamespace), strict); err != nil {
		t.Error(err)
	}
}

// mirrored shows an Application of an autonomous spoke on the hub, and deletes it there.
func mirrored(t *testing.T, w *world) {
	ctx, hub, spoke := t.Context(), w.onHub(autonomous), w.onSpoke(autonomous)
	const name = "shown"
	create(t, spoke, w.guestbook(name, harness.ArgoCDNamespace, ""))
	eventually(t, "the hub shows it", func() error { return healthy(ctx, hub, name) })
	patch(t, hub, name, map[string]any{"operation": map[string]any{"sync": map[string]any{"revision": harness.Branch}}})
	eventually(t, "a sync that the hub asked for is done", func() error {
		return errors.Join(
			field(ctx, spoke, name, nil, "operation"), field(ctx, hub, name, nil, "operation"),
			field(ctx, hub, name, "Succeeded", "status", "operationState", "phase"),
		)
	})
	if err := spoke.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is shown no more", func() error { return gone(ctx, hub, name) })
}
