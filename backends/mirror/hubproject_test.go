package mirror_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/stream"
)

// bySettings starts both sides with a policy of the spoke that starts as that of the
// defaults.
func bySettings(t *testing.T, o options, change func(*policy.Policy)) *pair {
	t.Helper()
	o.hub.Kinds, o.spoke.Kinds = allKinds.Kinds, allKinds.Kinds
	before := o.configure
	o.configure = func(side stream.Side, cfg *mirror.Config) {
		if before != nil {
			before(side, cfg)
		}
		if side == stream.Spoke {
			allowed := policy.Default()
			change(&allowed)
			cfg.Rules.Policy = &allowed
		}
	}
	return newPair(t, o)
}

// own is a project of the spoke's owner, which permits everything.
func own() m {
	return m{"spec": m{"sourceRepos": []any{"*"}, "destinations": []any{m{"server": "*", "namespace": "*"}}}}
}

// of is an Application of a project.
func of(project string) m {
	app := sourced("one")
	app["spec"].(m)["project"] = project
	return app
}

const notTheHubs = "policy.projects of the spoke does not allow project %q by its very name, and the one on the spoke is not the hub's"

// TestProjectsOfTheSpokeAreItsOwn has the hub send Applications of projects of which the
// spoke has one of its own, or none: they are refused unless the owner says otherwise, by
// that very name.
func TestProjectsOfTheSpokeAreItsOwn(t *testing.T) {
	const bothSwitches = "; the hub's comes with projects.share_default of the principal and appproject/default in policy.adopt of the spoke"
	nothing := func(*policy.Policy) {}
	tests := map[string]struct {
		project string
		absent  bool // on the spoke
		shared  bool // the hub's default
		policy  func(*policy.Policy)
		refused string
	}{
		"by the default policy":             {project: "web", policy: nothing, refused: fmt.Sprintf(notTheHubs, "web")},
		"by a pattern":                      {project: "web", policy: func(p *policy.Policy) { p.Projects = []string{"w*", "{web,shop}", "we?"} }, refused: fmt.Sprintf(notTheHubs, "web")},
		"by its name":                       {project: "web", policy: func(p *policy.Policy) { p.Projects = []string{"web"} }},
		"where projects are the owner's":    {project: "web", policy: func(p *policy.Policy) { p.Kinds = []string{"application"} }},
		"where it may be adopted":           {project: "web", policy: func(p *policy.Policy) { p.Adopt = []string{"appproject/web"} }},
		"default":                           {project: "default", policy: nothing, refused: fmt.Sprintf(notTheHubs, "default") + bothSwitches},
		"default, by its name":              {project: "default", policy: func(p *policy.Policy) { p.Projects = []string{"*", "default"} }},
		"default, where there is none":      {project: "default", absent: true, policy: nothing, refused: fmt.Sprintf(notTheHubs, "default") + bothSwitches},
		"default, which the hub shares":     {project: "default", shared: true, policy: nothing, refused: fmt.Sprintf(notTheHubs, "default") + bothSwitches},
		"default, with both switches":       {project: "default", shared: true, policy: func(p *policy.Policy) { p.Adopt = []string{"appproject/default"} }},
		"default, with both, and none here": {project: "default", absent: true, shared: true, policy: func(p *policy.Policy) { p.Adopt = []string{"appproject/default"} }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shares := func(_ stream.Side, cfg *mirror.Config) {
					if test.shared {
						cfg.Rules.DefaultProject = ownership.Shared
					}
				}
				r := bySettings(t, options{projects: []string{"web"}, configure: shares}, test.policy)
				if !test.absent {
					r.put(r.spoke, stream.AppProject, test.project, nil, own())
				}
				r.create(r.hub, "a", nil, of(test.project))
				r.connect()
				pass(20 * time.Minute)
				if got := r.get(r.spoke, "a"); (got == nil) != (test.refused != "") {
					t.Errorf("on the spoke is %v", got)
				}
				if text := test.refused; !r.says("a", text) || text != "" && !r.says("a", "did not apply it: "+text) {
					t.Errorf("the hub says %v", at(r.get(r.hub, "a"), "status", "conditions"))
				}
			})
		})
	}
}

// TestACopyOfAProjectOfTheSpoke has an Application on the spoke when its project there is
// the owner's: it stays, and neither a change nor an operation of the hub reaches it.
func TestACopyOfAProjectOfTheSpoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bySettings(t, options{projects: []string{"web"}}, func(*policy.Policy) {})
		r.create(r.hub, "a", nil, of("web"))
		cut, _ := r.connect()
		pass(time.Second)
		if r.get(r.spoke, "a") == nil {
			t.Fatal("with the hub's project it is not on the spoke")
		}
		cut()
		r.drop(r.spoke, stream.AppProject, "web")
		r.put(r.spoke, stream.AppProject, "web", nil, own())
		r.connect()
		pass(time.Minute)
		r.update(r.hub, "a", func(app m) { app["operation"] = m{"sync": m{}} })
		pass(time.Minute)
		want := fmt.Sprintf(notTheHubs, "web")
		state, _ := at(r.get(r.hub, "a"), "status", "operationState").(m)
		if message, _ := state["message"].(string); state["phase"] != "Error" || !strings.Contains(message, want) {
			t.Errorf("its operation ended with %v, want %s", state, want)
		}
		r.update(r.hub, "a", func(app m) { at(app, "spec", "source").(m)["path"] = "two" })
		pass(time.Minute)
		if got := r.get(r.spoke, "a"); at(got, "operation") != nil || at(got, "spec", "source", "path") != "one" {
			t.Errorf("on the spoke is %v", got)
		}
		if !r.says("a", want) {
			t.Errorf("the hub says %v", at(r.get(r.hub, "a"), "status", "conditions"))
		}
		r.remove(r.hub, "a")
		pass(time.Minute)
		if got := r.get(r.spoke, "a"); got != nil {
			t.Errorf("deleted, it is still there: %v", got)
		}
	})
}

// TestAnApplicationWaitsForItsProject lets the spoke's API server take no projects for a
// while, or its owner's policy refuse the project: the Application is there with it.
func TestAnApplicationWaitsForItsProject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails atomic.Bool
		fails.Store(true)
		fault := func(op memory.Op, key stream.ResourceKey) error {
			if op == memory.OpCreate && key.Kind == stream.AppProject && fails.Load() {
				return fmt.Errorf("no projects now: %w", stream.ErrUnavailable)
			}
			return nil
		}
		r := bySettings(t, options{spoke: memory.Config{Fault: fault}, projects: []string{"web"}}, func(*policy.Policy) {})
		r.create(r.hub, "a", nil, of("web"))
		r.connect()
		pass(10 * time.Minute)
		if r.get(r.spoke, "a") != nil {
			t.Fatal("it came before its project")
		}
		entry := stream.EntryKey{Collection: stream.Applications, Name: "a"}
		if got := r.stats(r.hub).Parked[entry]; got.Kind != stream.RefusalUnavailable || got.Message != `AppProject "web" of the hub is not on the spoke yet` {
			t.Errorf("meanwhile the hub has %+v", got)
		}
		came := map[stream.Kind]time.Time{}
		t.Cleanup(r.spoke.store.Subscribe(func(key stream.ResourceKey) {
			if came[key.Kind].IsZero() {
				came[key.Kind] = time.Now()
			}
		}))
		fails.Store(false)
		pass(time.Minute)
		if r.get(r.spoke, "a") == nil {
			t.Fatal("it did not come with its project")
		}
		if waited := came[stream.Application].Sub(came[stream.AppProject]); waited > time.Second {
			t.Errorf("it came %v after its project", waited)
		}
	})
}

// TestAnApplicationOfAProjectThatIsNotSent: the hub's project admits the Application, and
// never leaves the hub. The Application says so, and comes once the project does.
func TestAnApplicationOfAProjectThatIsNotSent(t *testing.T) {
	label := func(value any) func(m) {
		return func(o m) { o["metadata"].(m)["labels"] = m{ignoreSync: value} }
	}
	for name, c := range map[string]struct {
		project, says string
		keep, send    func(*pair)
	}{
		"by its label": {
			"web", `did not apply it: AppProject "web" of the hub is not on the spoke, and the hub does not send it: it has label ` + ignoreSync,
			func(r *pair) {
				r.updateKey(r.hub.store, stream.ResourceKey{Kind: stream.AppProject, Namespace: "argocd", Name: "web"}, label("true"))
			},
			func(r *pair) {
				r.updateKey(r.hub.store, stream.ResourceKey{Kind: stream.AppProject, Namespace: "argocd", Name: "web"}, label("false"))
			},
		},
		"default": {
			"default", `AppProject "default" of the hub is not on the spoke, and the hub does not send it: projects.share_default of the principal is off`,
			func(*pair) {}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := bySettings(t, options{}, func(p *policy.Policy) { p.Adopt = []string{"appproject/default"} })
				r.restricted(c.project, "*", "*", "web")
				c.keep(r)
				r.create(r.hub, "a", nil, of(c.project))
				r.connect()
				pass(time.Minute)
				if r.get(r.spoke, "a") != nil || !r.says("a", c.says) {
					t.Fatalf("the hub says %v, the spoke has %v", at(r.get(r.hub, "a"), "status", "conditions"), r.get(r.spoke, "a"))
				}
				if c.send == nil {
					return
				}
				c.send(r)
				pass(time.Minute)
				if r.get(r.spoke, "a") == nil || !r.says("a", "") {
					t.Errorf("the hub says %v, the spoke has %v", at(r.get(r.hub, "a"), "status", "conditions"), r.get(r.spoke, "a"))
				}
			})
		})
	}
}

// TestAnApplicationOfARefusedProject tells why the project is not there, and lets the
// Application come when the project fits.
func TestAnApplicationOfARefusedProject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bySettings(t, options{}, func(p *policy.Policy) { p.DestinationNamespaces = []string{"web"} })
		r.restricted("web", "*", "*", "*")
		r.create(r.hub, "a", nil, of("web"))
		r.connect()
		pass(time.Minute)
		if r.get(r.spoke, "a") != nil || !r.says("a", `AppProject "web" of the hub is not on the spoke: policy.destination_namespaces of the spoke`) {
			t.Errorf("the hub says %v, the spoke has %v", at(r.get(r.hub, "a"), "status", "conditions"), r.get(r.spoke, "a"))
		}
		r.restricted("web", "*", "*", "web")
		pass(10 * time.Second)
		if r.get(r.spoke, "a") == nil || !r.says("a", "") {
			t.Errorf("the hub says %v, the spoke has %v", at(r.get(r.hub, "a"), "status", "conditions"), r.get(r.spoke, "a"))
		}
	})
}
