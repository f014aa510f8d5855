//go:build linux

package e2e

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
// spokes: they are absent, and that they were never deleted nobody can see. A bump of
// the revision hides the restore from what goes by revisions.
func TestHistoryHubRestored(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "etcdctl", "etcdutl", "kube-apiserver")
	w, err := startQuietOn(t.Context(), harnesstest.AtOnce(t), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range restores {
		t.Run(c.what, func(t *testing.T) {
			ctx := t.Context()
			// Of few so little is lost that nothing but the history tells: the spoke came to
			// know the hub after the snapshot. Of many too much is lost to be believed.
			few, many := w.register(t, fmt.Sprint("few-", i), "managed"), w.connect(t, fmt.Sprint("many-", i), "managed")
			remotes, lost := []*remote{few, many}, map[*remote]int{few: 3, many: 15}
			for _, r := range remotes {
				createAll(t, r.hub, 20, func(i int) *unstructured.Unstructured { return r.application(fmt.Sprint("kept-", i)) })
			}
			eventually(t, "both sides are equal before", func() error { return many.same(ctx) })
			snapshot := w.h.Path(fmt.Sprintf("snapshot-%d.db", i))
			if err := w.hub.Etcd.Snapshot(ctx, snapshot); err != nil {
				t.Fatal(err)
			}

			few.start(t)
			seen := map[*remote]*recorder{}
			for _, r := range remotes {
				createAll(t, r.hub, lost[r], func(i int) *unstructured.Unstructured { return r.application(fmt.Sprint("lost-", i)) })
				patch(t, r.hub, "kept-0", map[string]any{"spec": map[string]any{"source": map[string]any{"targetRevision": "2"}}})
				eventually(t, "both sides are equal after", func() error { return r.same(ctx) })
				eventually(t, "the spoke knows the history", func() error { return r.knowsHistory(ctx) })
				seen[r] = record(t, r.spoke)
			}

			processes := []*harness.Process{few.agent.Process, many.agent.Process, w.principal.Process}
			for _, p := range processes {
				if !c.restarted {
					break
				}
				if err := p.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.hub.Restore(ctx, snapshot, c.bump); err != nil {
				t.Fatal(err)
			}
			for _, p := range processes {
				if err := p.Start(ctx); err != nil {
					t.Fatal(err)
				}
			}

			for _, r := range remotes {
				eventually(t, r.name+": the deletions are held, and named", func() error {
					for name, writes := range seen[r].writes() {
						if strings.HasPrefix(name, "lost-") {
							return harness.Permanent(fmt.Errorf("%s on the spoke saw %v", name, writes))
						}
					}
					return r.held(ctx, lost[r])
				})
				// The hub's word counts all the same: what it has again, and what is new.
				eventually(t, "what the hub has again is on the spoke", func() error {
					return field(ctx, r.spoke, "kept-0", "1", "spec", "source", "targetRevision")
				})
				create(t, r.hub, r.application("new"))
				eventually(t, "a new one comes to the spoke", func() error { return field(ctx, r.spoke, "new", "1", "spec", "source", "targetRevision") })
				eventually(t, "and is not all that is held", func() error { return r.held(ctx, lost[r]) })
				seen[r].caughtUp(t, r.spoke)
				for name, writes := range seen[r].writes() {
					if name != "kept-0" && name != "new" {
						t.Errorf("%s: %s on the spoke saw %v", r.name, name, writes)
					}
				}
			}

			for _, r := range remotes {
				if out, err := w.h.Agentctl(ctx, w.hub, "agent", "accept-deletions", r.name, "--yes"); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				eventually(t, r.name+": both sides are equal once that is accepted", func() error { return r.same(ctx) })
				eventually(t, "nothing is held any more", func() error {
					if r.held(ctx, lost[r]) == nil {
						return errors.New("it is")
					}
					return r.condition(ctx, "DeletionsHeld", "False", "")
				})
				seen[r].caughtUp(t, r.spoke)
				for i := range lost[r] {
					name := fmt.Sprint("lost-", i)
					for _, event := range seen[r].history(name) {
						if o := event.Object.(*unstructured.Unstructured); carriesCascade(o) {
							t.Errorf("%s: %s was armed at %s", r.name, name, o.GetResourceVersion())
						}
					}
					if writes := seen[r].writes()[name]; len(writes) != 2 || writes[1] != watch.Deleted {
						t.Errorf("%s: %s saw %v, not a release", r.name, name, writes)
					}
				}
				// A history begins again in which a delete is a delete.
				eventually(t, "the spoke knows the new history", func() error { return r.knowsHistory(ctx) })
				if err := r.hub.Delete(ctx, "new", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				eventually(t, "a delete is obeyed", func() error { return gone(ctx, r.spoke, "new") })
			}
		})
	}
}

// same is a check by two reads that both sides are equal.
func (r *remote) same(ctx context.Context) error {
	var sides [2]map[string]*unstructured.Unstructured
	for i, where := range []dynamic.ResourceInterface{r.hub, r.spoke} {
		list, err := where.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		sides[i] = map[string]*unstructured.Unstructured{}
		for k := range list.Items {
			sides[i][list.Items[k].GetName()] = &list.Items[k]
		}
	}
	return r.equal(sides[0], sides[1])
}

// knowsHistory is a check that the spoke keeps the newest token of the hub's history.
func (r *remote) knowsHistory(ctx context.Context) error {
	a, err := r.w.hub.Resource(agents, harness.ArgoCDNamespace).Get(ctx, r.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	tokens, _, _ := unstructured.NestedStringSlice(a.Object, "status", "history", "tokens")
	if len(tokens) == 0 {
		return errors.New("the hub has none")
	}
	return field(ctx, r.w.spoke.Resource(configMaps, r.namespace), "argomesh-agent", tokens[0], "data", "token")
}

// held is a check that the Agent shows so many deletions held, all of lost
// Applications, and says so in its condition.
func (r *remote) held(ctx context.Context, want int) error {
	a, err := r.w.hub.Resource(agents, harness.ArgoCDNamespace).Get(ctx, r.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	total, _, _ := unstructured.NestedInt64(a.Object, "status", "deletionsHeld", "total")
	objects, _, _ := unstructured.NestedSlice(a.Object, "status", "deletionsHeld", "objects")
	if text := fmt.Sprint(objects); int(total) != want || strings.Count(text, "name:lost-") != want {
		return fmt.Errorf("%d are held: %s", total, text)
	}
	return r.condition(ctx, "DeletionsHeld", "True", "agentctl agent accept-deletions "+r.name)
}

// condition is a check of one of the Agent's conditions, whose message holds a text.
func (r *remote) condition(ctx context.Context, kind, status, text string) error {
	a, err := r.w.hub.Resource(agents, harness.ArgoCDNamespace).Get(ctx, r.name, metav1.GetOptions{})
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
