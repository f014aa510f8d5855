//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/argomesh/argomesh/stream/link"
	"github.com/argomesh/argomesh/test/harness"
)

// TestFightOfTwoWriters has somebody on a spoke change a field of a copy back as soon as it
// was put right, as an image updater does, and stop in the end. What is written for it is
// counted by what the API server tells of.
func TestFightOfTwoWriters(t *testing.T) {
	t.Parallel()
	w, ctx := theQuietWorld(t), t.Context()
	r := w.connect(t, "fought-for", "managed")
	const name, told = "web", "somebody on the spoke changes it back: spec.source.path"
	for _, app := range []string{name, "other"} {
		create(t, r.hub, r.application(app))
		eventually(t, "the copy of "+app, func() error { return there(ctx, r.spoke, app) })
	}
	own := get(t, r.hub, name)
	path := func(o *unstructured.Unstructured) string {
		path, _, _ := unstructured.NestedString(o.Object, "spec", "source", "path")
		return path
	}
	theirs := map[string]any{"spec": map[string]any{"source": map[string]any{"path": "theirs"}}}

	// Three times it is put right at once, then twice, once a minute.
	const atOnce, rounds = 3, 5
	seen, begin := record(t, r.spoke), time.Now()
	answered, ended := 0, make(chan error, 1) // of the goroutine below
	watchFrom(t, r.spoke, get(t, r.spoke, name).GetResourceVersion(), func(event watch.Event) {
		o, is := event.Object.(*unstructured.Unstructured)
		if !is || o.GetName() != name || path(o) == "theirs" {
			return
		}
		if answered++; answered == rounds {
			ended <- nil
			return
		}
		if err := mergePatch(ctx, r.spoke, name, theirs); err != nil {
			ended <- err
		}
	})
	patch(t, r.spoke, name, theirs)
	eventually(t, "the fight is told", func() error {
		n, err := metric(ctx, r.agent.AdminAddress, "argomesh_mirror_undone_total")
		if err == nil && n < atOnce {
			err = fmt.Errorf("argomesh_mirror_undone_total is %v", n)
		}
		return errors.Join(err, r.parked(ctx, name, told), conditionSays(ctx, r.hub, name, "ArgomeshError", told))
	})
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("it is not put right any more")
	}
	if most := atOnce + int(time.Since(begin)/time.Minute); rounds > most {
		t.Errorf("it was put right %d times in %s, want %d at most", rounds, time.Since(begin), most)
	}

	limited, cancel := context.WithTimeout(ctx, link.ContestMemory+patience)
	defer cancel()
	if err := harness.Eventually(limited, "the fight is over", func() error {
		agent, err := w.hub.Resource(agents, harness.ArgoCDNamespace).Get(ctx, r.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		app, err := r.hub.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		parked, _, _ := unstructured.NestedSlice(agent.Object, "status", "parked")
		if c := conditionIn(app, "ArgomeshError"); c != nil || len(parked) > 0 {
			return fmt.Errorf("parked are %v, the condition is %v", parked, c)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	seen.caughtUp(t, r.spoke)
	if writes := seen.writes(); len(writes[name]) != 2*rounds || len(writes["other"]) > 0 {
		t.Errorf("the spoke was written %v, want %d times by either of the two", writes, rounds)
	}
	if got := path(get(t, r.spoke, name)); got != path(own) {
		t.Errorf("in the end the path is %q", got)
	}
	if diff := cmp.Diff(own.Object["spec"], get(t, r.hub, name).Object["spec"]); diff != "" {
		t.Errorf("the hub's Application was written (-before +after):\n%s", diff)
	}
}
