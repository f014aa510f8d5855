package mirror_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

// says reports whether a condition of an Application on the hub has a text in it; with an
// empty text, whether it has none.
func (r *pair) says(name, text string) bool {
	conditions, _ := at(r.get(r.hub, name), "status", "conditions").([]any)
	for _, c := range conditions {
		if condition, _ := c.(m); condition["type"] == "ArgomeshError" {
			message, _ := condition["message"].(string)
			return text != "" && strings.Contains(message, text)
		}
	}
	return text == ""
}

// restricted gives the hub a project for the agent with other source namespaces,
// repositories and destination namespaces.
func (r *pair) restricted(name, namespaces, repositories, within string) {
	r.put(r.hub, stream.AppProject, name, nil, m{"spec": m{
		"sourceNamespaces": []any{namespaces}, "sourceRepos": []any{repositories}, "destinations": []any{m{"name": "edge-1", "namespace": within}},
	}})
}

// sourced is an Application of project web.
func sourced(path string) m {
	return m{"spec": m{
		"project": "web", "destination": m{"name": "edge-1", "namespace": "web"}, "source": m{"repoURL": "https://git.test/web", "path": path},
	}}
}

// TestOnlyWhatTheProjectAdmitsLeavesTheHub begins with a project that does not admit an
// Application, by each of its rules in turn, and lets it.
func TestOnlyWhatTheProjectAdmitsLeavesTheHub(t *testing.T) {
	for rule, deny := range map[string]func(*pair){
		"does not exist":        func(*pair) {},
		"spec.sourceNamespaces": func(r *pair) { r.restricted("web", "other", "*", "*") },
		"spec.sourceRepos":      func(r *pair) { r.restricted("web", "*", "https://other.test/*", "*") },
		"spec.destinations":     func(r *pair) { r.restricted("web", "*", "*", "other") },
	} {
		t.Run(rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newPair(t, options{hub: allKinds, spoke: allKinds})
				deny(r)
				r.create(r.hub, "a", nil, sourced("one"))
				r.update(r.hub, "a", func(app m) {
					app["operation"] = m{"sync": m{}}
					app["metadata"].(m)["annotations"] = m{"argocd.argoproj.io/refresh": "hard"}
				})
				r.connect()
				pass(time.Minute)
				if r.get(r.spoke, "a") != nil {
					t.Error("it is on the spoke")
				}
				if !r.says("a", rule) || !r.says("a", `AppProject "web"`) {
					t.Errorf("the hub says %v", at(r.get(r.hub, "a"), "status"))
				}
				if got := at(r.get(r.hub, "a"), "status", "operationState"); got != nil {
					t.Errorf("its command is announced: %v", got)
				}
				if !r.stats(r.hub).Agreed {
					t.Error("the hub does not know of agreement")
				}
				r.restricted("web", "*", "https://git.test/*", "*")
				pass(time.Second)
				if copied := r.get(r.spoke, "a"); copied == nil || at(copied, "operation") == nil ||
					at(copied, "metadata", "annotations", "argocd.argoproj.io/refresh") != "hard" {
					t.Errorf("admitted, the spoke has %v", copied)
				}
				if !r.says("a", "") {
					t.Errorf("the hub still says %v", at(r.get(r.hub, "a"), "status"))
				}
			})
		})
	}
}

// TestWhatIsNoLongerAdmittedStays takes the admission from an Application that the spoke
// has, over restarts and edits on both sides: there it stays as it is, with its project as
// the hub has it now. A deletion passes.
func TestWhatIsNoLongerAdmittedStays(t *testing.T) {
	withdrawals := map[string]struct {
		withdraw func(*pair)
		rule     string
		project  any // on the spoke after that
	}{
		"its namespace": {
			func(r *pair) { r.restricted("web", "other", "*", "*") }, "spec.sourceNamespaces",
			m{"sourceRepos": []any{"*"}, "destinations": []any{}},
		},
		"its repository": {
			func(r *pair) { r.restricted("web", "*", "https://other.test/*", "*") }, "spec.sourceRepos",
			m{"sourceRepos": []any{"https://other.test/*"}, "destinations": []any{m{"name": "in-cluster", "server": "https://kubernetes.default.svc", "namespace": "*"}}},
		},
		"its destination": {
			func(r *pair) { r.restricted("web", "*", "*", "other") }, "spec.destinations",
			m{"sourceRepos": []any{"*"}, "destinations": []any{m{"name": "in-cluster", "server": "https://kubernetes.default.svc", "namespace": "other"}}},
		},
	}
	for what, test := range withdrawals {
		for when, away := range map[string]bool{"while the spoke is there": false, "while it is away and the principal restarts": true} {
			t.Run(what+"/"+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newPair(t, options{hub: allKinds, spoke: allKinds})
					r.restricted("web", "*", "*", "*")
					r.create(r.hub, "a", nil, sourced("one"))
					cut, _ := r.connect()
					pass(time.Second)
					uid := at(r.get(r.spoke, "a"), "metadata", "uid")
					if uid == nil {
						t.Fatal("it did not reach the spoke")
					}
					if away {
						cut()
						test.withdraw(r)
						r.cancel(nil)
						r.wait.Wait()
						o := r.options
						o.stores = [2]*memory.Store{r.hub.store, r.spoke.store}
						r = newPair(t, o)
						r.connect()
					} else {
						test.withdraw(r)
					}
					pass(time.Minute)
					r.update(r.hub, "a", func(app m) { at(app, "spec", "source").(m)["path"] = "two" })
					pass(20 * time.Minute)
					if got := r.get(r.spoke, "a"); at(got, "metadata", "uid") != uid || at(got, "spec", "source", "path") != "one" {
						t.Fatalf("on the spoke is %v", got)
					}
					if !r.says("a", test.rule) || !r.stats(r.hub).Agreed || !r.stats(r.spoke).Agreed {
						t.Errorf("the hub says %v", at(r.get(r.hub, "a"), "status"))
					}
					if diff := cmp.Diff(test.project, r.projectSpec("web")); diff != "" {
						t.Errorf("the project on the spoke (-want +got)\n%s", diff)
					}
					r.update(r.spoke, "a", func(app m) { app["status"] = m{"health": m{"status": "Degraded"}} })
					pass(time.Minute)
					if got := at(r.get(r.hub, "a"), "status", "health", "status"); got != "Degraded" {
						t.Errorf("its health on the hub is %v", got)
					}
					r.remove(r.hub, "a")
					pass(time.Minute)
					if got := r.get(r.spoke, "a"); got != nil {
						t.Errorf("deleted, it is still there: %v", got)
					}
				})
			})
		}
	}
}

// TestCascadeOfWhatIsNoLongerAdmitted deletes an Application with its workloads that its
// project permits no more: Argo CD would leave them, and that is told.
func TestCascadeOfWhatIsNoLongerAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{hub: allKinds, spoke: allKinds})
		r.restricted("web", "*", "*", "*")
		r.create(r.hub, "a", m{"finalizers": []any{cascade}}, sourced("one"))
		r.connect()
		pass(time.Second)
		r.update(r.spoke, "a", func(app m) {
			app["status"] = m{"resources": []any{m{"kind": "ConfigMap", "namespace": "web", "name": "c"}}}
		})
		pass(time.Second)
		r.restricted("web", "other", "*", "*")
		pass(time.Second)
		r.remove(r.hub, "a")
		pass(time.Minute)
		if !r.says("a", "AppProject web of the spoke permits none of its resources") {
			t.Errorf("the hub says %v", at(r.get(r.hub, "a"), "status", "conditions"))
		}
		if app := r.get(r.spoke, "a"); app == nil || at(app, "metadata", "deletionTimestamp") != nil {
			t.Errorf("on the spoke is %v", app)
		}
		r.restricted("web", "*", "*", "*")
		pass(20 * time.Minute)
		if app := r.get(r.spoke, "a"); at(app, "metadata", "deletionTimestamp") == nil {
			t.Errorf("admitted again, on the spoke is %v", app)
		}
	})
}
