//go:build linux

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/harness"
)

// projects are an autonomous agent's on the spoke; on the hub they are among those
// of all agents.
func (r *remote) projects() dynamic.ResourceInterface {
	return r.w.spoke.Resource(harness.AppProjects, r.namespace)
}

func (w *quietWorld) hubProjects() dynamic.ResourceInterface {
	return w.hub.Resource(harness.AppProjects, harness.ArgoCDNamespace)
}

func projectNamed(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"sourceRepos":  []any{"*"},
			"destinations": []any{map[string]any{"server": "https://kubernetes.default.svc", "namespace": "*"}},
		},
	}}
}

// TestHistoryPrincipalRestart ends the principal, with and without warning, while
// autonomous agents have projects whose names lie in wait. A principal that takes its
// own mirrors for projects of the hub sends them back, puts the prefix on a second
// time, or deletes what it cannot place; one that knows mirrors by their prefix alone
// takes those of solo-two for solo's.
func TestHistoryPrincipalRestart(t *testing.T) {
	t.Parallel()
	w, ctx := theQuietWorldAlone(t), t.Context()
	one, two := w.connect(t, "solo", "autonomous"), w.connect(t, "solo-two", "autonomous")
	for r, names := range map[*remote][]string{one: {"default", "team", "solo-team"}, two: {"default", "other"}} {
		for _, name := range names {
			create(t, r.projects(), projectNamed(name))
		}
		const each = 5
		for _, project := range names {
			createAll(t, r.spoke, each, func(i int) *unstructured.Unstructured {
				app := r.application(fmt.Sprintf("%s-%d", project, i))
				app.Object["spec"].(map[string]any)["project"] = project
				return app
			})
		}
		if _, err := r.spoke.Patch(ctx, "default-0", types.MergePatchType, []byte(`{"status":{"health":{"status":"Healthy"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	places := map[string]dynamic.ResourceInterface{
		"hub projects": w.hubProjects(), "hub solo": one.hub, "hub solo-two": two.hub,
		"spoke projects of solo": one.projects(), "spoke projects of solo-two": two.projects(),
		"spoke solo": one.spoke, "spoke solo-two": two.spoke,
	}
	records := map[string]*recorder{}
	for place, where := range places {
		records[place] = record(t, where)
	}
	mirrors := []string{"solo-default", "solo-team", "solo-solo-team", "solo-two-default", "solo-two-other"}
	slices.Sort(mirrors)
	settled := func() error {
		var got []string
		for name := range records["hub projects"].objects() {
			if strings.HasPrefix(name, one.name) { // not of another test's
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(mirrors, got); diff != "" {
			return fmt.Errorf("projects on the hub (-want +got):\n%s", diff)
		}
		for _, r := range []*remote{one, two} {
			if err := r.agree(records["spoke "+r.name], records["hub "+r.name]); err != nil {
				return err
			}
			if err := field(ctx, r.hub, "default-0", "Healthy", "status", "health", "status"); err != nil {
				return err
			}
		}
		return nil
	}
	eventually(t, "the hub shows what the spokes have", settled)

	for what, end := range map[string]func() error{
		"told to end": func() error {
			return w.principal.Stop(ctx)
		},
		"killed": w.principal.Kill,
	} {
		seen := map[string]*recorder{}
		for place, where := range places {
			seen[place] = record(t, where)
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if err := w.principal.Start(ctx); err != nil {
			t.Fatal(err)
		}
		// New ones come through only after the collection they belong to was compared.
		fence := map[string]string{"told to end": "fence-a", "killed": "fence-b"}[what]
		for _, r := range []*remote{one, two} {
			create(t, r.projects(), projectNamed(fence))
			create(t, r.spoke, r.application(fence))
			mirrors = append(mirrors, r.name+"-"+fence)
		}
		slices.Sort(mirrors)
		eventually(t, what+": the hub shows what is new", settled)
		added := []watch.EventType{watch.Added}
		for place, where := range places {
			seen[place].caughtUp(t, where)
			want := map[string][]watch.EventType{fence: added}
			if place == "hub projects" {
				want = map[string][]watch.EventType{one.name + "-" + fence: added, two.name + "-" + fence: added}
			}
			if diff := cmp.Diff(want, seen[place].writes()); diff != "" {
				t.Errorf("%s: writes in %s (-want +got):\n%s", what, place, diff)
			}
		}
	}
}
