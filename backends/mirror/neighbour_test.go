package mirror_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/kit"
)

// TestTwoAgentsOnOneCluster: two Argo CDs of a Kubernetes cluster each have an agent of
// the same hub, and both may have Applications in one namespace. Neither takes the
// other's for what its hub has deleted.
func TestTwoAgentsOnOneCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spoke := memory.New(memory.Config{})
		rigs := map[string]*pair{}
		for _, name := range []string{"edge-1", "edge-2"} {
			rigs[name] = newPair(t, options{
				stores: [2]*memory.Store{opened(t, memory.New(memory.Config{}), "default"), spoke},
				configure: func(side stream.Side, cfg *mirror.Config) {
					cfg.Rules.Agent = kit.Agent(t, name)
					if side == stream.Hub {
						cfg.Rules.Pairs = []mapping.Pair{{Spoke: "team-a", Hub: "edge-1"}}
						cfg.Rules.ClusterServer = "https://proxy/agents/" + name
					} else {
						cfg.Rules.Namespace, cfg.Rules.Namespaces = "argocd-"+name, []string{"team-*"}
					}
				},
			})
		}
		one, two := rigs["edge-1"], rigs["edge-2"]
		one.connect()
		two.connect()
		here := end{store: spoke, namespace: "team-a"}
		one.create(one.hub, "shop", nil, spec("one"))
		pass(time.Second)
		uid := at(one.get(here, "shop"), "metadata", "uid")
		pass(30 * time.Minute)
		if got := at(one.get(here, "shop"), "metadata", "uid"); uid == nil || got != uid {
			t.Fatalf("the copy had UID %v, and has %v", uid, got)
		}
		other := spec("two")
		other["spec"].(m)["destination"] = m{"name": "edge-2", "namespace": "web"}
		two.create(two.hub, "shop", nil, other)
		pass(time.Minute)
		if got, want := conditionOf(two.get(two.hub, "shop")), "agent edge-2 did not apply it: the Application of that name on the spoke is a copy of agent edge-1"; got != want {
			t.Errorf("the second hub Application says %q, want %q", got, want)
		}
		entry := stream.EntryKey{Collection: stream.Applications, Namespace: "team-a", Name: "shop"}
		if got := two.stats(two.spoke).Parked[entry].Kind; got != stream.RefusalNotOwned {
			t.Errorf("the spoke names it %q", got)
		}
		two.remove(two.hub, "shop")
		pass(time.Minute)
		if app := one.get(here, "shop"); at(app, "metadata", "uid") != uid || at(app, "spec", "source", "path") != "one" {
			t.Errorf("edge-1's copy is %v", app)
		}
	})
}

// TestAutonomousBesideManaged: a managed and an autonomous agent of one hub run on one Kubernetes
// cluster, and both may have Applications in one namespace. What is a copy of the hub's is not
// shown to the hub as if it were the spoke's own, and the hub of the one does not command it in
// the other's name; what someone makes there is shown.
func TestAutonomousBesideManaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spoke := memory.New(memory.Config{})
		rigs := map[stream.Mode]*pair{}
		for mode, name := range map[stream.Mode]string{stream.Managed: "edge-1", stream.Autonomous: "edge-2"} {
			rigs[mode] = newPair(t, options{
				mode:   mode,
				stores: [2]*memory.Store{opened(t, memory.New(memory.Config{}), "default"), spoke},
				configure: func(side stream.Side, cfg *mirror.Config) {
					cfg.Rules.Agent = kit.Agent(t, name)
					if side == stream.Hub {
						cfg.Rules.Pairs = []mapping.Pair{{Spoke: "team-a", Hub: "edge-1"}}
						cfg.Rules.ClusterServer = "https://proxy/agents/" + name
					} else {
						cfg.Rules.Namespace, cfg.Rules.Namespaces = "argocd-"+name, []string{"team-*"}
					}
				},
			})
		}
		managed, autonomous := rigs[stream.Managed], rigs[stream.Autonomous]
		managed.connect()
		autonomous.connect()
		here := end{store: spoke, namespace: "team-a"}
		managed.create(managed.hub, "shop", nil, spec("one"))
		autonomous.create(here, "own", nil, spec("two"))
		pass(time.Minute)
		if managed.get(here, "shop") == nil {
			t.Fatal("the hub's Application has no copy")
		}
		shown := func() []string {
			var names []string
			for _, o := range autonomous.hub.store.List(stream.Application, "") {
				names = append(names, o.Key.Name)
			}
			return names
		}
		if got := shown(); !slices.Equal(got, []string{"own"}) {
			t.Errorf("the hub of the autonomous agent shows %v, want [own]", got)
		}

		managed.remove(managed.hub, "shop")
		pass(time.Minute)
		autonomous.create(here, "shop", nil, spec("three"))
		pass(time.Minute)
		if got := shown(); !slices.Equal(got, []string{"own", "shop"}) {
			t.Errorf("the hub of the autonomous agent shows %v, want [own shop]", got)
		}
	})
}

// TestAnotherHubInherits moves an agent to another hub. What it had for the first one
// stays as it is until someone accepts the break; then the new hub takes what it has,
// and releases what it has not.
func TestAnotherHubInherits(t *testing.T) {
	for _, all := range []bool{false, true} {
		name := map[bool]string{false: "the new hub lacks one", true: "the new hub has all, of other content"}[all]
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &hubHistory{}
				r := newPair(t, options{configure: h.configure})
				cascades := watchCascades(t, r.spoke.store)
				for _, name := range []string{"both", "lacking"} {
					r.create(r.spoke, name, m{"annotations": m{
						source: "theirs-" + name, "argocd.argoproj.io/principal-uid": "hub-0",
						"argomesh.io/source": `{"hash":"00000000000000000000000000000000","revision":5,"created":5,"agent":"edge-1","wrote":""}`,
					}}, spec("theirs"))
				}
				r.create(r.hub, "both", nil, spec("ours"))
				if all {
					r.create(r.hub, "lacking", nil, spec("ours"))
				}
				h.set("the spoke continues the history of hub hub-0", nil)
				r.options.former = []string{"hub-0"}
				r.connect()
				pass(5 * time.Minute)
				for _, name := range []string{"both", "lacking"} {
					if got := at(r.get(r.spoke, name), "spec", "source", "path"); got != "theirs" {
						t.Fatalf("before anybody accepts, %s has path %v", name, got)
					}
				}
				stats := r.stats(r.hub)
				if stats.Begin || stats.Withheld.Total != 2 || len(stats.Withheld.Keys) != 2 {
					t.Fatalf("Stats() = %+v", stats)
				}
				h.set("", nil)
				r.hub.Accept(stats.Withheld.ID)
				pass(time.Minute)
				if stats = r.stats(r.hub); !stats.Begin || stats.Withheld.Total != 0 {
					t.Fatalf("accepted: Stats() = %+v", stats)
				}
				if r.get(r.spoke, "lacking") == nil {
					t.Error("it went before the spoke knew of the new history")
				}
				h.announce(r.hub, stream.History{ID: "h1", Token: "t1", Revision: 7})
				pass(6 * time.Minute)
				if got := at(r.get(r.spoke, "both"), "spec", "source", "path"); got != "ours" {
					t.Errorf("accepted, it has path %v", got)
				}
				if got := at(r.get(r.spoke, "lacking"), "spec", "source", "path"); (got == "ours") != all || !all && got != nil {
					t.Errorf("accepted, the other has path %v", got)
				}
				if cascades() != 0 {
					t.Error("something was deleted together with its workloads")
				}
				if h, s := r.stats(r.hub), r.stats(r.spoke); !h.Agreed || !s.Agreed {
					t.Errorf("hub %+v, spoke %+v", h, s)
				}
			})
		})
	}
}
