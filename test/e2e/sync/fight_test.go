//go:build linux

package sync

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
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// TestFightOfTwoWriters has someone on a spoke change a field of a copy back as soon as it
// was put right, as an image updater does, and stop in the end. What is written for it is
// counted by what the API server tells of.
func TestFightOfTwoWriters(t *testing.T) {
	t.Parallel()
	w, ctx := env.SharedBare(t), t.Context()
	r := w.Connect(t, "fought-for", "managed")
	const name, told = "web", "another writer on the spoke changes it back: spec.source.path"
	for _, app := range []string{name, "other"} {
		env.Create(t, r.Hub, r.Application(app))
		env.Eventually(t, "the copy of "+app, func() error { return env.Exists(ctx, r.Spoke, app) })
	}
	own := env.Get(t, r.Hub, name)
	path := func(o *unstructured.Unstructured) string {
		path, _, _ := unstructured.NestedString(o.Object, "spec", "source", "path")
		return path
	}
	theirs := map[string]any{"spec": map[string]any{"source": map[string]any{"path": "theirs"}}}

	// Three times it is put right at once, then twice, once a minute.
	const atOnce, rounds = 3, 5
	seen, begin := env.Record(t, r.Spoke), time.Now()
	answered, ended := 0, make(chan error, 1) // of the goroutine below
	env.WatchFrom(t, r.Spoke, env.Get(t, r.Spoke, name).GetResourceVersion(), func(event watch.Event) {
		o, is := event.Object.(*unstructured.Unstructured)
		if !is || o.GetName() != name || path(o) == "theirs" {
			return
		}
		if answered++; answered == rounds {
			ended <- nil
			return
		}
		if err := env.MergePatch(ctx, r.Spoke, name, theirs); err != nil {
			ended <- err
		}
	})
	env.Patch(t, r.Spoke, name, theirs)
	env.Eventually(t, "the fight is told", func() error {
		n, err := env.Metric(ctx, r.Agent.AdminAddress, "argomesh_mirror_undone_total")
		if err == nil && n < atOnce {
			err = fmt.Errorf("argomesh_mirror_undone_total is %v", n)
		}
		return errors.Join(err, r.Parked(ctx, name, told), env.ConditionSays(ctx, r.Hub, name, "ArgomeshError", told))
	})
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(env.Patience):
		t.Fatal("it is not put right any more")
	}
	if most := atOnce + int(time.Since(begin)/time.Minute); rounds > most {
		t.Errorf("it was put right %d times in %s, want %d at most", rounds, time.Since(begin), most)
	}

	limited, cancel := context.WithTimeout(ctx, link.ContestWindow+env.Patience)
	defer cancel()
	if err := harness.Eventually(limited, "the fight is over", func() error {
		agent, err := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Get(ctx, r.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		app, err := r.Hub.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		parked, _, _ := unstructured.NestedSlice(agent.Object, "status", "parked")
		if c := env.ConditionIn(app, "ArgomeshError"); c != nil || len(parked) > 0 {
			return fmt.Errorf("parked are %v, the condition is %v", parked, c)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	seen.CaughtUp(t, r.Spoke)
	if writes := seen.Writes(); len(writes[name]) != 2*rounds || len(writes["other"]) > 0 {
		t.Errorf("the spoke was written %v, want %d times by either of the two", writes, rounds)
	}
	if got := path(env.Get(t, r.Spoke, name)); got != path(own) {
		t.Errorf("in the end the path is %q", got)
	}
	if diff := cmp.Diff(own.Object["spec"], env.Get(t, r.Hub, name).Object["spec"]); diff != "" {
		t.Errorf("the hub's Application was written (-before +after):\n%s", diff)
	}
}
