package mirror_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/stream"
)

const approvedKey = "argocd.argoproj.io/deletion-approved"

// TestConfirmationOfADeletion confirms on the hub a deletion that the spoke's Argo CD does
// not carry out without, and takes the Application out of reconciliation and back.
func TestConfirmationOfADeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		r := newPair(t, options{watch: func(msg stream.Message) {
			if batch, is := msg.(stream.Batch); is {
				for _, e := range batch.Events {
					if e.Key.Collection == stream.Applications {
						sent++
					}
				}
			}
		}})
		r.connect()
		r.create(r.hub, "a", m{"finalizers": []any{cascade}}, spec("one"))
		pass(time.Second)
		r.remove(r.hub, "a")
		pass(time.Minute)
		annotate := func(key string, value any) {
			t.Helper()
			sent = 0 // while all is at rest
			r.update(r.hub, "a", func(app m) {
				annotations, _ := at(app, "metadata", "annotations").(m)
				if annotations == nil {
					annotations = m{}
				}
				if annotations[key] = value; value == nil {
					delete(annotations, key)
				}
				app["metadata"].(m)["annotations"] = annotations
			})
			pass(time.Minute)
			if got := at(r.get(r.spoke, "a"), "metadata", "annotations", key); got != value {
				t.Errorf("%s on the spoke is %v, want %v", key, got, value)
			}
			if sent != 1 {
				t.Errorf("it was sent %d times", sent)
			}
			if !r.stats(r.hub).Agreed {
				t.Error("the hub does not know that the spoke has it")
			}
		}
		annotate("argocd.argoproj.io/skip-reconcile", "true")
		annotate("argocd.argoproj.io/skip-reconcile", nil)
		annotate(approvedKey, time.Now().UTC().Format(time.RFC3339))
		if diff := cmp.Diff(any([]any{cascade}), at(r.get(r.spoke, "a"), "metadata", "finalizers")); diff != "" {
			t.Errorf("finalizers (-want +got)\n%s", diff)
		}
		r.update(r.spoke, "a", func(app m) { delete(app["metadata"].(m), "finalizers") })
		pass(time.Second)
		if r.get(r.spoke, "a") != nil || r.get(r.hub, "a") != nil {
			t.Errorf("hub %v, spoke %v", r.get(r.hub, "a"), r.get(r.spoke, "a"))
		}
	})
}
