package mirror_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestCascadeIsNotLostToAnOlderWrite has the spoke's Argo CD end a reconciliation that it
// began before the deletion, in which a delete hook went: it writes all finalizers as they
// were, without a resourceVersion.
func TestCascadeIsNotLostToAnOlderWrite(t *testing.T) {
	for name, after := range map[string]time.Duration{"at once": time.Millisecond, "after some time": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newPair(t, options{})
				cut, _ := r.connect()
				r.create(r.hub, "a", m{"finalizers": []any{cascade}}, spec("one"))
				pass(time.Second)
				hooks := []any{"post-delete-finalizer.argocd.argoproj.io", "post-delete-finalizer.argocd.argoproj.io/cleanup"}
				r.update(r.spoke, "a", func(app m) { app["metadata"].(m)["finalizers"] = hooks })
				pass(time.Second)
				r.remove(r.hub, "a")
				pass(after)
				r.update(r.spoke, "a", func(app m) {
					delete(app["metadata"].(m), "finalizers")
					app["status"] = m{"reconciledAt": "2026-01-01T00:00:00Z"}
				})
				pass(time.Second)
				cut()
				r.connect()
				pass(20 * time.Second)
				app := r.get(r.spoke, "a")
				if diff := cmp.Diff(any([]any{cascade}), at(app, "metadata", "finalizers")); diff != "" || at(app, "metadata", "deletionTimestamp") == nil {
					t.Fatalf("the copy is not being deleted with its workloads: %v", app)
				}
				if skip := at(app, "metadata", "annotations", "argocd.argoproj.io/skip-reconcile"); skip != nil {
					t.Errorf("skip-reconcile is %v, and Argo CD leaves it alone", skip)
				}
				r.update(r.spoke, "a", func(app m) { delete(app["metadata"].(m), "finalizers") })
				pass(time.Second)
				if r.get(r.spoke, "a") != nil || r.get(r.hub, "a") != nil {
					t.Errorf("hub %v, spoke %v", r.get(r.hub, "a"), r.get(r.spoke, "a"))
				}
			})
		})
	}
}
