package mirror_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

const (
	postDelete = "post-delete-finalizer.argocd.argoproj.io"
	// gone, permitted and permits are parts of what is told.
	gone      = "its copy was gone while Argo CD had neither its workloads nor its delete hooks done"
	permitted = "when its copy was gone, AppProject web of the spoke permitted none of its resources"
	permits   = "AppProject web of the spoke permits none of its resources"
)

// ourConditions are the messages of ours, with their types.
func ourConditions(app m) string {
	list, _ := at(app, "status", "conditions").([]any)
	var out []string
	for _, c := range list {
		if fields, _ := c.(m); strings.HasPrefix(fields["type"].(string), "Argomesh") {
			out = append(out, fields["type"].(string)+": "+fields["message"].(string))
		}
	}
	return strings.Join(out, "\n")
}

// endsPair has an Application with a resource, and hook finalizers on its copy.
func endsPair(t *testing.T, hooks ...any) (r *pair, cut func()) {
	t.Helper()
	r = stayPair(t, false)
	r.destinations("web", "edge-1")
	r.create(r.hub, "a", m{"finalizers": []any{cascade}}, named("web"))
	cut, _ = r.connect()
	pass(time.Second)
	r.update(r.spoke, "a", func(app m) {
		if len(hooks) > 0 {
			app["metadata"].(m)["finalizers"] = hooks
		}
		app["status"] = m{"resources": []any{m{"kind": "Deployment", "namespace": "web", "name": "a"}}}
	})
	pass(time.Second)
	return r, cut
}

// finalizers sets those of the copy.
func (r *pair) finalizers(list ...any) {
	r.update(r.spoke, "a", func(app m) { app["metadata"].(m)["finalizers"] = list })
}

// TestEndOfACascade lets a copy go in several ways, and says what becomes of the hub's
// Application.
func TestEndOfACascade(t *testing.T) {
	for name, test := range map[string]struct {
		hooks []any
		end   func(r *pair, cut func())
		want  string // of the condition of the Application that stays; empty when it goes
	}{
		"without hooks": {nil, func(r *pair, _ func()) { r.finalizers() }, ""},
		"with hooks, in order": {[]any{postDelete}, func(r *pair, _ func()) {
			r.finalizers(postDelete)
			r.finalizers()
		}, ""},
		"with hooks, all at once": {[]any{postDelete}, func(r *pair, _ func()) { r.finalizers() }, "ArgomeshDeletionError: agent edge-1: " + gone},
		"of a project that was closed meanwhile": {nil, func(r *pair, cut func()) {
			cut() // else the agent may open it again before the copy is gone
			synctest.Wait()
			web := stream.ResourceKey{Kind: stream.AppProject, Namespace: "argocd", Name: "web"}
			r.updateKey(r.spoke.store, web, func(project m) { project["spec"] = m{"destinations": []any{}} })
			r.finalizers()
			synctest.Wait()
			r.connect()
		}, "ArgomeshDeletionError: agent edge-1: " + permitted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, cut := endsPair(t, test.hooks...)
				r.remove(r.hub, "a")
				pass(20 * time.Second)
				if at(r.get(r.spoke, "a"), "metadata", "deletionTimestamp") == nil {
					t.Fatalf("the copy is not being deleted: %v", r.get(r.spoke, "a"))
				}
				test.end(r, cut)
				check := func(when string) {
					t.Helper()
					pass(10 * time.Minute)
					app := r.get(r.hub, "a")
					switch got := ourConditions(app); {
					case r.get(r.spoke, "a") != nil:
						t.Fatalf("%s: the spoke has it", when)
					case (app != nil) != (test.want != ""):
						t.Fatalf("%s: on the hub there is %v", when, app)
					case test.want == "" && got != "" || !strings.HasPrefix(got, test.want):
						t.Errorf("%s: %q, want %q", when, got, test.want)
					}
				}
				check("at its end")
				if test.want == "" {
					return
				}
				if parked := r.stats(r.hub).Parked; len(parked) != 1 {
					t.Errorf("parked: %v", parked)
				}
				cut()
				r.cancel(nil)
				r.wait.Wait()
				o := r.options
				o.stores = [2]*memory.Store{r.hub.store, r.spoke.store}
				r = newPair(t, o) // which knows nothing of it
				r.connect()
				check("after a restart of both")
			})
		})
	}
}

// TestDeletionWithoutEffectIsNotBegun deletes an Application whose project permits none of
// its resources on the spoke.
func TestDeletionWithoutEffectIsNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := endsPair(t)
		r.destinations("web", "edge-2")
		pass(time.Second)
		r.remove(r.hub, "a")
		pass(time.Minute)
		if app := r.get(r.spoke, "a"); app == nil || at(app, "metadata", "deletionTimestamp") != nil || at(app, "metadata", "finalizers") != nil {
			t.Fatalf("the copy is %v", app)
		}
		if got, want := ourConditions(r.get(r.hub, "a")), "ArgomeshError: agent edge-1 did not apply it: "+permits; !strings.HasPrefix(got, want) {
			t.Errorf("condition %q, want %q", got, want)
		}
		r.destinations("web", "edge-1")
		pass(7 * time.Minute)
		if at(r.get(r.spoke, "a"), "metadata", "deletionTimestamp") == nil {
			t.Fatal("the project permits it, and it is not deleted")
		}
		r.finalizers()
		pass(time.Second)
		if r.get(r.spoke, "a") != nil || r.get(r.hub, "a") != nil {
			t.Errorf("hub %v, spoke %v", r.get(r.hub, "a"), r.get(r.spoke, "a"))
		}
	})
}

// TestEndThatIsNotSeenYet has the cache of a spoke lag behind the end of a copy: what is
// answered waits for it.
func TestEndThatIsNotSeenYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var people *memory.Store
		r := newPair(t, options{spoke: memory.Config{Lag: true}, before: func(_, spoke *memory.Store) { people = spoke.OpenAs("people") }})
		show := func() {
			r.spoke.store.Deliver(-1)
			pass(time.Second)
		}
		show()
		r.create(r.hub, "a", m{"finalizers": []any{cascade}}, spec("one"))
		cut, _ := r.connect()
		pass(time.Second)
		show()
		mine := end{store: people, namespace: "argocd"}
		r.update(mine, "a", func(app m) { app["metadata"].(m)["finalizers"] = []any{postDelete} })
		show()
		r.remove(r.hub, "a")
		for range 20 {
			show()
		}
		if at(r.get(r.spoke, "a"), "metadata", "deletionTimestamp") == nil {
			t.Fatalf("the copy is not being deleted: %v", r.get(r.spoke, "a"))
		}
		r.update(mine, "a", func(app m) { delete(app["metadata"].(m), "finalizers") })
		cut()
		r.connect() // it is asked for again while the cache shows it
		pass(time.Minute)
		if r.get(r.hub, "a") == nil {
			t.Fatal("the hub's Application went before anybody saw how its copy did")
		}
		show()
		pass(time.Minute)
		if got := ourConditions(r.get(r.hub, "a")); !strings.Contains(got, gone) {
			t.Errorf("condition %q", got)
		}
	})
}
