//go:build linux

package history

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
)

// TestHistoryAway makes 1,500 updates, 200 deletes and 200 creates while the agent
// is away, once behind a network that is cut, once killed, so that one of the two
// sides remembers nothing. A queue of events per agent breaks on it: it is full long
// before, drops the oldest, and no one looks again at what they were about.
func TestHistoryAway(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedBare(t), t.Context()
	r := w.Connect(t, "away", "managed")
	const seed = 1100
	env.CreateAll(t, r.Hub, seed, func(i int) *unstructured.Unstructured { return r.Application(fmt.Sprint("app-0-", i)) })
	// Those of the spoke's own people are no one's business.
	const locals = 5
	env.CreateAll(t, r.Spoke, locals, func(i int) *unstructured.Unstructured { return r.Application(fmt.Sprint("local-", i)) })
	hub, spoke := env.Record(t, r.Hub), env.Record(t, r.Spoke)
	env.Eventually(t, "both sides are equal at first", func() error { return r.Agree(hub, spoke) })

	for round, c := range []struct {
		what       string
		away, back func() error
	}{
		{
			"the network is cut",
			func() error { r.Network.Cut(); return nil },
			func() error { r.Network.Mend(); return nil },
		},
		{
			"the agent is killed",
			r.Agent.Kill,
			func() error { return r.Agent.Start(ctx) },
		},
	} {
		spoke.CaughtUp(t, r.Spoke)
		before, seen := spoke.Objects(), env.Record(t, r.Spoke)
		if err := c.away(); err != nil {
			t.Fatal(err)
		}
		names := slices.Sorted(maps.Keys(hub.Objects()))
		updated, deleted := names[:700], names[600:800]
		created := make([]string, 200)
		for i := range created {
			created[i] = fmt.Sprintf("app-%d-%d", round+1, i)
		}
		env.Each(t, len(updated), func(ctx context.Context, i int) error {
			// 1,500 updates of 700: two of each, and a third of the first hundred.
			for n := range 2 + (len(updated)-1-i)/600 {
				patch := fmt.Sprintf(`{"metadata":{"labels":{"round":"%d-%d"}},"spec":{"source":{"targetRevision":"%d-%d"}}}`, round, n, round, n)
				if _, err := r.Hub.Patch(ctx, updated[i], types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
					return err
				}
			}
			return nil
		})
		env.Each(t, len(deleted), func(ctx context.Context, i int) error { return r.Hub.Delete(ctx, deleted[i], metav1.DeleteOptions{}) })
		env.CreateAll(t, r.Hub, len(created), func(i int) *unstructured.Unstructured { return r.Application(created[i]) })
		hub.CaughtUp(t, r.Hub)
		mine := hub.Objects()
		if err := c.back(); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, c.what+": both sides are equal again", func() error { return r.Agree(hub, spoke) })

		// Nothing but what had to be written was written, and that once.
		want := map[string][]watch.EventType{}
		for _, name := range updated {
			want[name] = []watch.EventType{watch.Modified}
		}
		for _, name := range deleted {
			want[name] = []watch.EventType{watch.Modified, watch.Deleted} // released, then gone
		}
		for _, name := range created {
			want[name] = []watch.EventType{watch.Added}
		}
		seen.CaughtUp(t, r.Spoke)
		if diff := cmp.Diff(want, seen.Writes()); diff != "" {
			t.Errorf("%s: writes on the spoke (-want +got):\n%s", c.what, diff)
		}
		after := spoke.Objects()
		for _, name := range append(names[800:], "local-0", "local-4") {
			if was, is := before[name].GetResourceVersion(), after[name].GetResourceVersion(); was != is {
				t.Errorf("%s: %s was written: resourceVersion %s became %s", c.what, name, was, is)
			}
		}
		hub.CaughtUp(t, r.Hub)
		for name, o := range hub.Objects() {
			if diff := cmp.Diff(withoutAbsence(mine[name]), withoutAbsence(o)); diff != "" {
				t.Errorf("%s: %s was written on the hub (-before +after):\n%s", c.what, name, diff)
			}
		}
	}
}

// withoutAbsence is an Application of the hub without what it says of an agent that has been
// away for a minute, and without what each write changes.
func withoutAbsence(o *unstructured.Unstructured) map[string]any {
	if o == nil {
		return nil
	}
	o = o.DeepCopy()
	o.SetResourceVersion("")
	o.SetGeneration(0)
	o.SetManagedFields(nil)
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	conditions = slices.DeleteFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == "ArgomeshStaleWarning" })
	unstructured.RemoveNestedField(o.Object, "status", "conditions")
	if len(conditions) > 0 {
		_ = unstructured.SetNestedSlice(o.Object, conditions, "status", "conditions") // what was there is a map
	}
	if status, _, _ := unstructured.NestedMap(o.Object, "status"); len(status) == 0 {
		unstructured.RemoveNestedField(o.Object, "status")
	}
	return o.Object
}
