//go:build linux

package history

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

	"github.com/argomesh/argomesh/test/e2e/internal/env"
)

// TestHistoryPrincipalRestart ends the principal, with and without warning, while
// autonomous agents have projects whose names lie in wait. A principal that takes its
// own mirrors for projects of the hub sends them back, puts the prefix on a second
// time, or deletes what it cannot place; one that knows mirrors by their prefix alone
// takes those of solo-two for solo's.
func TestHistoryPrincipalRestart(t *testing.T) {
	t.Parallel()
	w, ctx := env.OwnBare(t), t.Context()
	one, two := w.Connect(t, "solo", "autonomous"), w.Connect(t, "solo-two", "autonomous")
	for r, names := range map[*env.BareAgent][]string{one: {"default", "team", "solo-team"}, two: {"default", "other"}} {
		for _, name := range names {
			env.Create(t, r.Projects(), env.ProjectNamed(name))
		}
		const each = 5
		for _, project := range names {
			env.CreateAll(t, r.Spoke, each, func(i int) *unstructured.Unstructured {
				app := r.Application(fmt.Sprintf("%s-%d", project, i))
				app.Object["spec"].(map[string]any)["project"] = project
				return app
			})
		}
		if _, err := r.Spoke.Patch(ctx, "default-0", types.MergePatchType, []byte(`{"status":{"health":{"status":"Healthy"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	places := map[string]dynamic.ResourceInterface{
		"hub projects": w.HubProjects(), "hub solo": one.Hub, "hub solo-two": two.Hub,
		"spoke projects of solo": one.Projects(), "spoke projects of solo-two": two.Projects(),
		"spoke solo": one.Spoke, "spoke solo-two": two.Spoke,
	}
	records := map[string]*env.Recorder{}
	for place, where := range places {
		records[place] = env.Record(t, where)
	}
	mirrors := []string{"solo-default", "solo-team", "solo-solo-team", "solo-two-default", "solo-two-other"}
	slices.Sort(mirrors)
	settled := func() error {
		var got []string
		for name := range records["hub projects"].Objects() {
			if strings.HasPrefix(name, one.Name) { // not of another test's
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(mirrors, got); diff != "" {
			return fmt.Errorf("projects on the hub (-want +got):\n%s", diff)
		}
		for _, r := range []*env.BareAgent{one, two} {
			if err := r.Agree(records["spoke "+r.Name], records["hub "+r.Name]); err != nil {
				return err
			}
			if err := env.FieldIs(ctx, r.Hub, "default-0", "Healthy", "status", "health", "status"); err != nil {
				return err
			}
		}
		return nil
	}
	env.Eventually(t, "the hub shows what the spokes have", settled)

	for what, end := range map[string]func() error{
		"told to end": func() error {
			return w.Principal.Stop(ctx)
		},
		"killed": w.Principal.Kill,
	} {
		seen := map[string]*env.Recorder{}
		for place, where := range places {
			seen[place] = env.Record(t, where)
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if err := w.Principal.Start(ctx); err != nil {
			t.Fatal(err)
		}
		// New ones come through only after the collection they belong to was compared.
		fence := map[string]string{"told to end": "fence-a", "killed": "fence-b"}[what]
		for _, r := range []*env.BareAgent{one, two} {
			env.Create(t, r.Projects(), env.ProjectNamed(fence))
			env.Create(t, r.Spoke, r.Application(fence))
			mirrors = append(mirrors, r.Name+"-"+fence)
		}
		slices.Sort(mirrors)
		env.Eventually(t, what+": the hub shows what is new", settled)
		added := []watch.EventType{watch.Added}
		for place, where := range places {
			seen[place].CaughtUp(t, where)
			want := map[string][]watch.EventType{fence: added}
			if place == "hub projects" {
				want = map[string][]watch.EventType{one.Name + "-" + fence: added, two.Name + "-" + fence: added}
			}
			if diff := cmp.Diff(want, seen[place].Writes()); diff != "" {
				t.Errorf("%s: writes in %s (-want +got):\n%s", what, place, diff)
			}
		}
	}
}
