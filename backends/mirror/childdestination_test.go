package mirror_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/departures"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/kit"
)

// By destination the children of each agent are shown in the namespace of its name, so two
// of one name do not meet, and none is shown in Argo CD's own.
func TestChildrenByDestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDividedWith(t, options{children: true})
		one, two := d.agents["edge-1"], d.agents["edge-2"]
		cut, _ := one.connect()
		two.connect()
		cascades := watchCascades(t, d.hub)
		one.child("c")
		two.child("c")
		// Where the hub has one of that name and destination, both are there.
		one.create(d.here("argocd"), "c", nil, to(m{"name": "edge-1", "namespace": "web"}))
		// In another namespace of the spoke.
		one.create(d.spoke("edge-1", "team"), "apart", nil, spec("1"))
		pass(time.Second)
		for _, agent := range []string{"edge-1", "edge-2"} {
			shown := one.get(d.here(agent), "c")
			if at(shown, "metadata", "annotations", source) != at(one.get(d.spoke(agent, "argocd"), "c"), "metadata", "uid") {
				t.Fatalf("%s: the hub shows %v", agent, shown)
			}
			if got := at(shown, "spec", "destination", "name"); got != agent {
				t.Errorf("the child of %s has destination %v", agent, got)
			}
		}
		if app := one.get(d.here("argocd"), "c"); at(app, "metadata", "annotations", source) != nil {
			t.Errorf("in Argo CD's namespace a child is shown: %v", app)
		}
		for _, namespace := range []string{"edge-1", "team", "argocd"} {
			if one.get(d.here(namespace), "apart") != nil {
				t.Errorf("a child of another namespace is shown in %s", namespace)
			}
		}
		stats, err := one.hub.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		refusal := stats.Parked[stream.EntryKey{Collection: stream.Children, Namespace: "team", Name: "apart"}]
		if refusal.Kind != stream.RefusalNotOwned || !strings.Contains(refusal.Message, "alone, since the hub maps by destination") {
			t.Errorf("of a child in another namespace is said %v", refusal)
		}

		// It follows the spoke, is read-only, and goes with its original.
		one.update(d.spoke("edge-1", "argocd"), "c", func(app m) { app["status"] = m{"health": m{"status": "Degraded"}} })
		one.update(d.here("edge-1"), "c", func(app m) { app["operation"] = m{"sync": m{"revision": "1"}} })
		pass(time.Second)
		shown := one.get(d.here("edge-1"), "c")
		if message, _ := at(shown, "status", "operationState", "message").(string); at(shown, "status", "health", "status") != "Degraded" || !strings.Contains(message, "read-only") {
			t.Errorf("the hub shows %v", shown["status"])
		}
		if at(one.get(d.spoke("edge-1", "argocd"), "c"), "operation") != nil {
			t.Error("the spoke got an operation")
		}
		two.remove(d.spoke("edge-2", "argocd"), "c")
		two.update(d.spoke("edge-2", "argocd"), "c", func(app m) { delete(app["metadata"].(m), "finalizers") })
		pass(time.Minute)
		if two.get(d.here("edge-2"), "c") != nil || one.get(d.here("edge-1"), "c") == nil {
			t.Error("the mirror of what is gone is there, or another one went")
		}

		// The agent leaves: its link ends, and the mirror goes with nothing of the spoke.
		cut()
		one.cancel(nil)
		one.wait.Wait()
		departure := departures.Teardown{Store: d.shares.For(kit.Agent(t, "edge-1")), Rules: ownership.Rules{
			Marks: copies.Marks{
				Map: mapping.Map{
					Side: stream.Hub, Mode: stream.Managed, Agent: kit.Agent(t, "edge-1"), Namespace: "argocd", ByDestination: true, ChildNamespace: "edge-1",
				},
			},
		}}
		for waits := "begun"; waits != ""; {
			if waits, err = departure.Orphan(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if two.get(d.here("edge-1"), "c") != nil || two.get(d.here("argocd"), "c") == nil || two.get(d.spoke("edge-1", "argocd"), "c") == nil {
			t.Error("after the agent the mirror is there, or more went")
		}
		if cascades() != 0 {
			t.Error("a mirror went with workloads")
		}
	})
}

// What the hub has in the way of a child by destination, which its agent's link does not
// see, stays as it is.
func TestWhatIsInTheWayOfAChildByDestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDividedWith(t, options{children: true})
		one := d.agents["edge-1"]
		here := d.here("edge-1")
		mirrored := func(agent, extra string) m {
			return m{"annotations": m{source: "u", "argomesh.io/source": `{"child":true,"agent":"` + agent + `"` + extra + `}`}}
		}
		released := mirrored("edge-1", "")
		released["annotations"].(m)[record.ReleasedKey] = "true"
		for name, meta := range map[string]m{
			"own":      nil,
			"released": released,
			"another":  mirrored("edge-2", ""),
		} {
			one.create(here, name, meta, to(m{"name": "edge-1"}))
			one.child(name)
		}
		before := map[string]any{}
		for _, name := range []string{"own", "released", "another"} {
			before[name] = one.revision(here, name)
		}
		one.connect()
		pass(time.Hour)
		stats, err := one.hub.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for name, was := range before {
			if one.revision(here, name) != was {
				t.Errorf("%s was written: %v", name, one.get(here, name))
			}
			if refusal := stats.Parked[stream.EntryKey{Collection: stream.Children, Name: name}]; !strings.Contains(refusal.Message, "of its own") {
				t.Errorf("of child %s is said %v", name, refusal)
			}
		}
		one.remove(here, "own")
		pass(6 * time.Minute) // what was refused is tried again
		if at(one.get(here, "own"), "metadata", "annotations", source) == nil {
			t.Error("the child is not shown once the way is free")
		}
	})
}

// Children on the hub by destination are no strays where they belong, and are elsewhere.
func TestStrayChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDividedWith(t, options{children: true})
		one := d.agents["edge-1"]
		one.connect()
		one.child("c")
		pass(time.Second)
		sweep := func(namespaces map[string]identity.AgentName) {
			t.Helper()
			if err := (departures.OrphanedMirrors{
				Store: d.hub, Namespace: "argocd", Owner: func(namespace string) identity.AgentName { return namespaces[namespace] },
				ProjectOwner: func(string) identity.AgentName { return identity.AgentName{} },
				Registered:   func(identity.AgentName) bool { return true },
			}).Remove(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		was := one.revision(d.here("edge-1"), "c")
		sweep(map[string]identity.AgentName{"edge-1": kit.Agent(t, "edge-1")})
		if one.revision(d.here("edge-1"), "c") != was {
			t.Error("the mirror of a child was taken for a stray")
		}
		one.cancel(nil)
		one.wait.Wait()
		sweep(nil)
		if d.agents["edge-2"].get(d.here("edge-1"), "c") != nil {
			t.Error("the mirror of a child is there when its agent has no namespace any more")
		}
	})
}
