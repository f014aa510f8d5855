package mirror_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/stream"
)

// TestProjectStaysForWhatIsGoing takes a project from the agent while an Application of it
// is to be deleted with its workloads, for which the spoke's Argo CD needs the project.
func TestProjectStaysForWhatIsGoing(t *testing.T) {
	mappings := map[string]bool{"by namespace": false, "by destination": true}
	withdrawals := map[string]func(*pair){
		"the agent is taken out of it": func(r *pair) { r.destinations("web", "edge-2") },
		"it is deleted":                func(r *pair) { r.drop(r.hub, stream.AppProject, "web") },
	}
	moments := map[string]func(r *pair, cut func(), withdraw func(*pair)) *pair{
		"while the spoke is there": func(r *pair, _ func(), withdraw func(*pair)) *pair {
			r.remove(r.hub, "a")
			pass(time.Second)
			withdraw(r)
			return r
		},
		"while the spoke is away": func(r *pair, cut func(), withdraw func(*pair)) *pair {
			cut()
			r.remove(r.hub, "a")
			withdraw(r)
			pass(time.Hour)
			r.connect()
			return r
		},
		"and both are restarted": func(r *pair, cut func(), withdraw func(*pair)) *pair {
			cut()
			r.remove(r.hub, "a")
			withdraw(r)
			r.cancel(nil)
			r.wait.Wait()
			o := r.options
			o.stores = [2]*memory.Store{r.hub.store, r.spoke.store}
			next := newPair(r.t, o)
			next.hub.namespace = r.hub.namespace
			next.connect()
			return next
		},
	}
	for name, byDestination := range mappings {
		for withdrawal, withdraw := range withdrawals {
			for moment, happens := range moments {
				t.Run(name+"/"+withdrawal+"/"+moment, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						r := stayPair(t, byDestination)
						r.destinations("web", "edge-1")
						r.secret("key", "repository", "web", "https://git.test/web")
						r.create(r.hub, "a", m{"finalizers": []any{cascade}}, named("web"))
						cut, _ := r.connect()
						pass(time.Second)
						before := r.projectSpec("web")
						r = happens(r, cut, withdraw)
						pass(20 * time.Minute)
						if app := r.get(r.spoke, "a"); app == nil || app["metadata"].(m)["deletionTimestamp"] == nil {
							t.Fatalf("the copy is not being deleted: %v", app)
						}
						if diff := cmp.Diff(before, r.projectSpec("web")); diff != "" || before == nil {
							t.Errorf("the project that Argo CD needs (-want +got)\n%s", diff)
						}
						r.wantSecrets("during the cascade", "key")
						if !r.stats(r.hub).Agreed {
							t.Error("the hub does not know of agreement")
						}
						r.update(r.spoke, "a", func(app m) { delete(app["metadata"].(m), "finalizers") })
						pass(30 * time.Second)
						if r.get(r.spoke, "a") != nil || r.get(r.hub, "a") != nil {
							t.Errorf("hub %v, spoke %v", r.get(r.hub, "a"), r.get(r.spoke, "a"))
						}
						if got := r.projectSpec("web"); got != nil {
							t.Errorf("the project stays: %v", got)
						}
						r.wantSecrets("after the cascade")
					})
				})
			}
		}
	}
}

// TestProjectOfWhatStays takes a project from the agent while an Application that is not
// going names it: from then on the project permits nothing there, and its Secrets are gone.
func TestProjectOfWhatStays(t *testing.T) {
	for name, byDestination := range map[string]bool{"by namespace": false, "by destination": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := stayPair(t, byDestination)
				r.destinations("web", "edge-1")
				r.destinations("other", "edge-1")
				r.secret("key", "repository", "web", "https://git.test/web")
				r.create(r.hub, "a", nil, named("web"))
				r.connect()
				pass(time.Second)
				r.destinations("web", "edge-2")
				r.wantSecrets("after the withdrawal")
				closed := m{"destinations": []any{}, "sourceRepos": []any{"*"}}
				if diff := cmp.Diff(closed, r.projectSpec("web")); diff != "" {
					t.Errorf("the project on the spoke (-want +got)\n%s", diff)
				}
				r.update(r.hub, "a", func(app m) { app["spec"].(m)["project"] = "other" })
				pass(time.Minute)
				if got := r.projectSpec("web"); got != nil {
					t.Errorf("nothing names it, and it stays: %v", got)
				}
			})
		})
	}
}

// TestProjectThatAnOlderCopyNames has an Application of the hub name a project that does not
// admit it, and takes from the agent the one that the spoke's copy goes on naming: that
// permits nothing, and stays as long as the copy does.
func TestProjectThatAnOlderCopyNames(t *testing.T) {
	withdrawals := map[string]func(*pair){
		"the agent is taken out of it": func(r *pair) { r.destinations("web", "edge-2") },
		"it is deleted":                func(r *pair) { r.drop(r.hub, stream.AppProject, "web") },
	}
	ends := map[string]func(*pair){
		"the Application goes":        func(r *pair) { r.remove(r.hub, "a") },
		"the Application is admitted": func(r *pair) { r.destinations("other", "edge-1") },
	}
	for withdrawal, withdraw := range withdrawals {
		for ending, end := range ends {
			t.Run(withdrawal+"/"+ending, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := stayPair(t, false)
					r.destinations("web", "edge-1")
					r.create(r.hub, "a", nil, named("web"))
					r.connect()
					pass(time.Second)
					r.update(r.hub, "a", func(app m) { app["spec"].(m)["project"] = "other" })
					pass(time.Second)
					open := r.projectSpec("web")
					withdraw(r)
					pass(20 * time.Minute)
					if got := at(r.get(r.spoke, "a"), "spec", "project"); got != "web" {
						t.Fatalf("the copy is of project %v", got)
					}
					if diff := cmp.Diff(m{"destinations": []any{}, "sourceRepos": []any{"*"}}, r.projectSpec("web")); diff != "" {
						t.Errorf("the project on the spoke (-want +got)\n%s", diff)
					}
					parked := r.stats(r.hub).Parked[stream.EntryKey{Collection: stream.AppProjects, Name: "web"}]
					if parked.Kind != stream.RefusalKept || !strings.Contains(parked.Message, "it permits nothing there") {
						t.Errorf("the hub says %+v", parked)
					}
					end(r)
					pass(time.Minute)
					if got := r.projectSpec("web"); got != nil {
						t.Errorf("nothing names the project, and it stays: %v", got)
					}
					r.destinations("web", "edge-1")
					pass(time.Minute)
					if diff := cmp.Diff(open, r.projectSpec("web")); diff != "" {
						t.Errorf("once it is for the agent again (-want +got)\n%s", diff)
					}
				})
			})
		}
	}
}

// TestProjectIsWholeAgain gives a project back to the agent that was taken while a copy
// named it.
func TestProjectIsWholeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := stayPair(t, false)
		r.destinations("web", "edge-1")
		r.create(r.hub, "a", nil, named("web"))
		r.connect()
		pass(time.Second)
		whole := r.projectSpec("web")
		r.update(r.hub, "a", func(app m) { app["spec"].(m)["project"] = "other" })
		pass(time.Second)
		r.destinations("web", "edge-2")
		pass(time.Minute)
		if destinations, _ := at(m{"spec": r.projectSpec("web")}, "spec", "destinations").([]any); len(destinations) > 0 {
			t.Fatalf("it permits %v", destinations)
		}
		r.destinations("web", "edge-1")
		pass(time.Minute)
		if diff := cmp.Diff(whole, r.projectSpec("web")); diff != "" || !r.stats(r.hub).Agreed {
			t.Errorf("the project on the spoke (-want +got)\n%s", diff)
		}
	})
}

// TestReleaseOfAProjectWaits has a hub that takes a project away while an Application of it
// is going on the spoke, as one of an earlier release does.
func TestReleaseOfAProjectWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := stayPair(t, false)
		r.destinations("web", "edge-1")
		r.destinations("bystander", "edge-1")
		r.create(r.hub, "a", m{"finalizers": []any{cascade}}, named("web"))
		cut, _ := r.connect()
		pass(time.Second)
		r.remove(r.hub, "a")
		pass(time.Second)
		cut()
		r.attack(r.spoke).say(stream.Batch{Events: []stream.Event{
			{ID: "x.1", Key: stream.EntryKey{Collection: stream.AppProjects, Name: "web"}, Verb: stream.Delete},
			{ID: "x.2", Key: stream.EntryKey{Collection: stream.AppProjects, Name: "bystander"}, Verb: stream.Delete},
		}})
		pass(time.Second)
		if r.projectSpec("web") == nil {
			t.Error("the project is gone from under the Application")
		}
		if r.projectSpec("bystander") != nil {
			t.Error("a project that nothing needs stays")
		}
	})
}

// stayPair has the hub's Applications in Argo CD's namespace when they are the agent's by
// their destination.
func stayPair(t *testing.T, byDestination bool) *pair {
	t.Helper()
	r := newPair(t, options{hub: allKinds, spoke: allKinds, configure: func(side stream.Side, cfg *mirror.Config) {
		cfg.Rules.ByDestination = byDestination && side == stream.Hub
	}})
	if byDestination {
		r.hub.namespace = "argocd"
	}
	return r
}

// named is an Application of a project.
func named(project string) m {
	return m{"spec": m{"project": project, "destination": m{"name": "edge-1", "namespace": "web"}}}
}

// destinations gives the hub a project for an agent.
func (r *pair) destinations(project, agent string) {
	r.put(r.hub, stream.AppProject, project, nil, m{"spec": m{
		"sourceNamespaces": []any{"*"}, "sourceRepos": []any{"*"}, "destinations": []any{m{"name": agent, "namespace": "web"}},
	}})
}

// projectSpec is that of a project on the spoke; nil when there is none.
func (r *pair) projectSpec(name string) any {
	o, found := r.spoke.store.Get(stream.ResourceKey{Kind: stream.AppProject, Namespace: "argocd", Name: name})
	if !found {
		return nil
	}
	return parse(r.t, o)["spec"]
}
