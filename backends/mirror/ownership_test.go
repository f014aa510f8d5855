package mirror_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

const mismatchPolicy = "argocd.argoproj.io/source-uid-mismatch-policy"

// TestRecreatedUnderTheSameName lets the owner's object be replaced while the link
// is down, in both modes and under both policies. No copy is ever deleted together
// with its workloads.
func TestRecreatedUnderTheSameName(t *testing.T) {
	for _, mode := range []stream.Mode{stream.Managed, stream.Autonomous} {
		for policy, anew := range map[string]bool{"": false, "upsert": false, "recreate": true} {
			t.Run(mode.String()+" "+policy, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, options{mode: mode})
					owner, other := r.hub, r.spoke
					if mode == stream.Autonomous {
						owner, other = r.spoke, r.hub
					}
					cascades := watchCascades(t, other.store)
					cut, _ := r.connect()
					r.create(owner, "a", nil, spec("one"))
					pass(time.Second)
					r.update(other, "a", func(app m) {
						app["metadata"].(m)["labels"] = m{"mine": "x"}
						app["status"] = m{"history": []any{m{"id": 1}}}
					})
					pass(time.Second)
					before := at(r.get(other, "a"), "metadata", "uid")
					cut()
					r.remove(owner, "a")
					meta := m{}
					if policy != "" {
						meta["annotations"] = m{mismatchPolicy: policy}
					}
					r.create(owner, "a", meta, spec("two"))
					r.connect()
					pass(time.Minute)
					app := r.get(other, "a")
					if got := at(app, "spec", "source", "path"); got != "two" {
						t.Fatalf("the copy has path %v", got)
					}
					if got := at(app, "metadata", "annotations", "argocd.argoproj.io/source-uid"); got != at(r.get(owner, "a"), "metadata", "uid") {
						t.Errorf("the copy is of %v", got)
					}
					if (at(app, "metadata", "uid") != before) != anew {
						t.Errorf("the copy had UID %v, and has %v", before, at(app, "metadata", "uid"))
					}
					if (at(app, "metadata", "labels", "mine") == nil) != anew {
						t.Errorf("the copy has labels %v", at(app, "metadata", "labels"))
					}
					if cascades() != 0 {
						t.Error("a copy was deleted together with its workloads")
					}
					if h, s := r.stats(r.hub), r.stats(r.spoke); !h.Agreed || !s.Agreed {
						t.Errorf("hub %+v, spoke %+v", h, s)
					}
				})
			})
		}
	}
}

// watchCascades counts the objects that a store shows as being deleted with a
// cascade finalizer.
func watchCascades(t *testing.T, store *memory.Store) (count func() int) {
	t.Helper()
	seen := map[any]bool{}
	t.Cleanup(store.Subscribe(func(key stream.ResourceKey) {
		if o, ok := store.Get(key); ok {
			meta, _ := at(parse(t, o), "metadata").(m)
			finalizers, _ := meta["finalizers"].([]any)
			if meta["deletionTimestamp"] != nil && slices.Contains(finalizers, any(cascade)) {
				seen[meta["uid"]] = true
			}
		}
	}))
	return func() int { return len(seen) }
}
