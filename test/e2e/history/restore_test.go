//go:build linux

package history

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// aRestore is one way in which a hub's etcd is taken back.
type aRestore struct {
	what      string
	bump      uint64 // added to the revisions, so that none is seen a second time
	restarted bool   // principal and agents are killed before
}

const restoreBump = 1_000_000

// TestHistoryHubRestored takes the hub's etcd back to a snapshot from before some
// Applications were written. What compares only what is there deletes them from the
// spokes: they are absent, and that they were never deleted no one can see. A bump of
// the revision hides the restore from what goes by revisions.
func TestHistoryHubRestored(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "etcdctl", "etcdutl", "kube-apiserver")
	w, err := env.StartBareOn(t.Context(), harnesstest.AtOnce(t), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range restores {
		t.Run(c.what, func(t *testing.T) {
			ctx := t.Context()
			// Of few so little is lost that nothing but the history tells: the spoke came to
			// know the hub after the snapshot. Of many too much is lost to be believed.
			few, many := w.Register(t, fmt.Sprint("few-", i), "managed"), w.Connect(t, fmt.Sprint("many-", i), "managed")
			remotes, lost := []*env.BareAgent{few, many}, map[*env.BareAgent]int{few: 3, many: 15}
			for _, r := range remotes {
				env.CreateAll(t, r.Hub, 20, func(i int) *unstructured.Unstructured { return r.Application(fmt.Sprint("kept-", i)) })
			}
			env.Eventually(t, "both sides are equal before", func() error { return same(ctx, many) })
			snapshot := w.Harness.Path(fmt.Sprintf("snapshot-%d.db", i))
			if err := w.Hub.Etcd.Snapshot(ctx, snapshot); err != nil {
				t.Fatal(err)
			}

			few.Start(t)
			seen := map[*env.BareAgent]*env.Recorder{}
			for _, r := range remotes {
				env.CreateAll(t, r.Hub, lost[r], func(i int) *unstructured.Unstructured { return r.Application(fmt.Sprint("lost-", i)) })
				env.Patch(t, r.Hub, "kept-0", map[string]any{"spec": map[string]any{"source": map[string]any{"targetRevision": "2"}}})
				env.Eventually(t, "both sides are equal after", func() error { return same(ctx, r) })
				env.Eventually(t, "the spoke knows the history", func() error { return knowsHistory(ctx, r) })
				seen[r] = env.Record(t, r.Spoke)
			}

			processes := []*harness.Process{few.Agent.Process, many.Agent.Process, w.Principal.Process}
			for _, p := range processes {
				if !c.restarted {
					break
				}
				if err := p.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Hub.Restore(ctx, snapshot, c.bump); err != nil {
				t.Fatal(err)
			}
			for _, p := range processes {
				if err := p.Start(ctx); err != nil {
					t.Fatal(err)
				}
			}

			for _, r := range remotes {
				env.Eventually(t, r.Name+": the deletions are held, and named", func() error {
					for name, writes := range seen[r].Writes() {
						if strings.HasPrefix(name, "lost-") {
							return harness.Permanent(fmt.Errorf("%s on the spoke saw %v", name, writes))
						}
					}
					return held(ctx, r, lost[r])
				})
				// The hub's word counts all the same: what it has again, and what is new.
				env.Eventually(t, "what the hub has again is on the spoke", func() error {
					return env.FieldIs(ctx, r.Spoke, "kept-0", "1", "spec", "source", "targetRevision")
				})
				env.Create(t, r.Hub, r.Application("new"))
				env.Eventually(t, "a new one comes to the spoke", func() error { return env.FieldIs(ctx, r.Spoke, "new", "1", "spec", "source", "targetRevision") })
				env.Eventually(t, "and is not all that is held", func() error { return held(ctx, r, lost[r]) })
				seen[r].CaughtUp(t, r.Spoke)
				for name, writes := range seen[r].Writes() {
					if name != "kept-0" && name != "new" {
						t.Errorf("%s: %s on the spoke saw %v", r.Name, name, writes)
					}
				}
			}

			for _, r := range remotes {
				if out, err := w.Harness.Agentctl(ctx, w.Hub, "agent", "accept-deletions", r.Name, "--yes"); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				env.Eventually(t, r.Name+": both sides are equal once that is accepted", func() error { return same(ctx, r) })
				env.Eventually(t, "nothing is held any more", func() error {
					if held(ctx, r, lost[r]) == nil {
						return errors.New("it is")
					}
					return condition(ctx, r, "DeletionsHeld", "False", "")
				})
				seen[r].CaughtUp(t, r.Spoke)
				for i := range lost[r] {
					name := fmt.Sprint("lost-", i)
					for _, event := range seen[r].History(name) {
						if o := event.Object.(*unstructured.Unstructured); env.CarriesCascade(o) {
							t.Errorf("%s: %s was armed at %s", r.Name, name, o.GetResourceVersion())
						}
					}
					if writes := seen[r].Writes()[name]; len(writes) != 2 || writes[1] != watch.Deleted {
						t.Errorf("%s: %s saw %v, not a release", r.Name, name, writes)
					}
				}
				// A history begins again in which a delete is a delete.
				env.Eventually(t, "the spoke knows the new history", func() error { return knowsHistory(ctx, r) })
				if err := r.Hub.Delete(ctx, "new", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				env.Eventually(t, "a delete is obeyed", func() error { return env.Gone(ctx, r.Spoke, "new") })
			}
		})
	}
}

// same is a check by two reads that both sides are equal.
func same(ctx context.Context, r *env.BareAgent) error {
	var sides [2]map[string]*unstructured.Unstructured
	for i, where := range []dynamic.ResourceInterface{r.Hub, r.Spoke} {
		list, err := where.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		sides[i] = map[string]*unstructured.Unstructured{}
		for k := range list.Items {
			sides[i][list.Items[k].GetName()] = &list.Items[k]
		}
	}
	return r.Equal(sides[0], sides[1])
}

// knowsHistory is a check that the spoke keeps the newest token of the hub's history.
func knowsHistory(ctx context.Context, r *env.BareAgent) error {
	a, err := r.Env.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	tokens, _, _ := unstructured.NestedStringSlice(a.Object, "status", "history", "tokens")
	if len(tokens) == 0 {
		return errors.New("the hub has none")
	}
	return env.FieldIs(ctx, r.Env.Spoke.Resource(env.ConfigMaps, r.Namespace), "argomesh-agent", tokens[0], "data", "token")
}

// held is a check that the Agent shows so many deletions held, all of lost
// Applications, and says so in its condition.
func held(ctx context.Context, r *env.BareAgent, want int) error {
	a, err := r.Env.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	total, _, _ := unstructured.NestedInt64(a.Object, "status", "deletionsHeld", "total")
	objects, _, _ := unstructured.NestedSlice(a.Object, "status", "deletionsHeld", "objects")
	if text := fmt.Sprint(objects); int(total) != want || strings.Count(text, "name:lost-") != want {
		return fmt.Errorf("%d are held: %s", total, text)
	}
	return condition(ctx, r, "DeletionsHeld", "True", "agentctl agent accept-deletions "+r.Name)
}

// condition is a check of one of the Agent's conditions, whose message holds a text.
func condition(ctx context.Context, r *env.BareAgent, kind, status, text string) error {
	a, err := r.Env.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	list, _, _ := unstructured.NestedSlice(a.Object, "status", "conditions")
	for _, item := range list {
		m, _ := item.(map[string]any)
		if m["type"] == kind && m["status"] == status && strings.Contains(fmt.Sprint(m["message"]), text) {
			return nil
		}
	}
	return fmt.Errorf("condition %s is not %s with %q: %v", kind, status, text, list)
}
