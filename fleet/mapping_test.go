package fleet_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
)

// mapped is agent with a mode and namespaces, each "spoke=hub".
func mapped(name string, created int64, mode v1alpha1.AgentMode, namespaces ...v1alpha1.MappedNamespace) v1alpha1.Agent {
	a := agent(name, created)
	a.Spec.Mode = mode
	if len(namespaces) > 0 {
		a.Spec.Mapping = &v1alpha1.AgentMapping{Namespaces: namespaces}
	}
	return a
}

func pair(spoke, hub string) v1alpha1.MappedNamespace {
	return v1alpha1.MappedNamespace{Spoke: spoke, Hub: hub}
}

func TestNamespaces(t *testing.T) {
	for name, test := range map[string]struct {
		agents    []v1alpha1.Agent
		owners    map[string]string
		conflicts map[string]string
	}{
		"each its own": {
			agents: []v1alpha1.Agent{mapped("a", 0, v1alpha1.ModeManaged), mapped("b", 1, v1alpha1.ModeAutonomous)},
			owners: map[string]string{"a": "a", "b": "b"},
		},
		"several": {
			agents: []v1alpha1.Agent{mapped("a", 0, v1alpha1.ModeAutonomous, pair("", "x"), pair("team", "y"))},
			owners: map[string]string{"x": "a", "y": "a"},
		},
		"the older one keeps it": {
			agents:    []v1alpha1.Agent{mapped("new", 5, v1alpha1.ModeAutonomous, pair("", "x")), mapped("old", 1, v1alpha1.ModeAutonomous, pair("t", "x"))},
			owners:    map[string]string{"x": "old"},
			conflicts: map[string]string{"new": "namespace x belongs to the older Agent old"},
		},
		"the namespace of an agent's name is nobody else's": {
			agents:    []v1alpha1.Agent{mapped("b", 5, v1alpha1.ModeAutonomous, pair("", "a")), mapped("a", 1, v1alpha1.ModeManaged)},
			owners:    map[string]string{"a": "a"},
			conflicts: map[string]string{"b": "namespace a belongs to the older Agent a"},
		},
		"Argo CD's own": {
			agents:    []v1alpha1.Agent{mapped("a", 0, v1alpha1.ModeAutonomous, pair("", "argocd"), pair("t", "u")), mapped("argocd", 1, v1alpha1.ModeManaged)},
			owners:    map[string]string{"u": "a"},
			conflicts: map[string]string{"a": "namespace argocd is that of the hub's Argo CD", "argocd": "namespace argocd is that of the hub's Argo CD"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			byNamespace, conflicts := fleet.Namespaces(test.agents, "argocd")
			owners := map[string]string{}
			for namespace, name := range byNamespace {
				owners[namespace] = name.String()
			}
			if diff := cmp.Diff(test.owners, owners); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
			var said map[string]string
			for name, list := range conflicts {
				if said == nil {
					said = map[string]string{}
				}
				for _, c := range list {
					said[name.String()] += c.String()
				}
			}
			if diff := cmp.Diff(test.conflicts, said); diff != "" {
				t.Errorf("conflicts (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever an Application says, it is one agent's or no one's.
func TestOwner(t *testing.T) {
	agents := []v1alpha1.Agent{
		mapped("edge-1", 0, v1alpha1.ModeManaged), mapped("edge-2", 0, v1alpha1.ModeManaged),
		mapped("auto", 0, v1alpha1.ModeAutonomous, pair("", "auto-apps"), pair("t", "auto-team"), pair("u", "taken")),
		showing(mapped("kids", 0, v1alpha1.ModeManaged)), showing(mapped("taken", 0, v1alpha1.ModeManaged, pair("", "x"))),
		showing(mapped("argocd", 0, v1alpha1.ModeManaged)),
	}
	agents[1].Spec.Suspended = true
	child := func(of, namespace string) fleet.Placement {
		name, err := identity.ParseAgentName(of)
		if err != nil {
			t.Fatal(err)
		}
		return fleet.Placement{Namespace: namespace, Name: of, Child: name}
	}
	server := func(name identity.AgentName) string { return "https://proxy:9090/agents/" + name.String() }
	for name, m := range map[string]fleet.Mapping{
		"by namespace":   {Namespace: "argocd"},
		"by destination": {Namespace: "argocd", ByDestination: true, Admits: func(ns string) bool { return ns == "team" || ns == "edge-1" || ns == "auto-team" }, Server: server},
	} {
		t.Run(name, func(t *testing.T) {
			r := fleet.Registry{Mapping: m}
			if _, owned := r.Owner(fleet.Placement{Namespace: "argocd", Name: "edge-1"}); owned {
				t.Error("before the Agents are known there is an owner")
			}
			r.Set(agents)
			for _, test := range []struct {
				app             fleet.Placement
				byNamespace, by string
			}{
				{fleet.Placement{Namespace: "edge-1", Name: "edge-1"}, "edge-1", "edge-1"},
				{fleet.Placement{Namespace: "edge-1", Name: "edge-2"}, "edge-1", "edge-2"},
				{fleet.Placement{Namespace: "edge-2", Name: "edge-2"}, "edge-2", ""}, // not admitted
				{fleet.Placement{Namespace: "argocd", Name: "edge-1"}, "", "edge-1"},
				{fleet.Placement{Namespace: "argocd", Server: "https://proxy:9090/agents/edge-2"}, "", "edge-2"}, // suspended, and yet its
				{fleet.Placement{Namespace: "team", Server: "https://proxy:9090/agents/edge-1"}, "", "edge-1"},
				{fleet.Placement{Namespace: "team", Server: "https://proxy:9090/agents/edge-1/"}, "", "edge-1"}, // the same to Argo CD
				{fleet.Placement{Namespace: "team", Server: "https://proxy:9090/agents/"}, "", ""},
				{fleet.Placement{Namespace: "team", Name: "edge-1", Server: "https://proxy:9090/agents/edge-2"}, "", "edge-1"},
				{fleet.Placement{Namespace: "team", Server: "https://other:9090/agents/edge-1"}, "", ""},
				{fleet.Placement{Namespace: "team", Server: "edge-1"}, "", ""},
				{fleet.Placement{Namespace: "team", Server: "https://argocd-agent:9090?agentName=edge-1"}, "", "edge-1"},
				{fleet.Placement{Namespace: "team", Server: "https://argocd-agent:9090?agentName=edge-3"}, "", ""},
				{fleet.Placement{Namespace: "team", Name: "edge-2", Server: "https://argocd-agent:9090?agentName=edge-1"}, "", "edge-2"},
				{fleet.Placement{Namespace: "elsewhere", Server: "https://argocd-agent:9090?agentName=edge-1"}, "", ""},
				{fleet.Placement{Namespace: "team", Name: "in-cluster"}, "", ""},
				{fleet.Placement{Namespace: "team", Name: "edge-3"}, "", ""},
				{fleet.Placement{Namespace: "team", Name: "auto"}, "", ""}, // the hub has nothing for it to do
				{fleet.Placement{Namespace: "team"}, "", ""},
				{fleet.Placement{Namespace: "elsewhere", Name: "edge-1"}, "", ""},
				{fleet.Placement{Namespace: "auto-apps", Name: "auto"}, "auto", "auto"},
				{fleet.Placement{Namespace: "auto-team", Name: "edge-1"}, "auto", "auto"}, // its namespace is its own
				{fleet.Placement{Namespace: "auto", Name: "auto"}, "", ""},
				{child("kids", "kids"), "kids", "kids"},
				{fleet.Placement{Namespace: "kids", Name: "kids"}, "kids", ""}, // no mirror, or released
				{child("edge-1", "kids"), "kids", ""},                          // in another agent's
				{child("edge-2", "edge-2"), "edge-2", ""},                      // which shows none
				{child("gone", "gone"), "", ""},
				{child("taken", "taken"), "auto", "auto"},    // the namespace is auto's
				{child("argocd", "argocd"), "", "argocd"},    // by its destination: never as a child
				{child("kids", "auto-apps"), "auto", "auto"}, // and so are all in it
			} {
				want := test.byNamespace
				if m.ByDestination {
					want = test.by
				}
				name, owned := r.Owner(test.app)
				if name.String() != want || owned != (want != "") {
					t.Errorf("Owner(%+v) = %q, %t, want %q", test.app, name, owned, want)
				}
			}
		})
	}
}

// showing is an Agent whose children are to be shown.
func showing(a v1alpha1.Agent) v1alpha1.Agent {
	a.Spec.ChildApplications = v1alpha1.ChildApplicationsMirror
	return a
}

// By destination each agent's children have a namespace that is no one else's, or none.
func TestChildNamespace(t *testing.T) {
	agents := []v1alpha1.Agent{
		showing(mapped("kids", 5, v1alpha1.ModeManaged)), mapped("quiet", 0, v1alpha1.ModeManaged), showing(mapped("auto", 0, v1alpha1.ModeAutonomous)),
		showing(mapped("argocd", 0, v1alpha1.ModeManaged)), showing(mapped("taken", 5, v1alpha1.ModeManaged)), mapped("owner", 0, v1alpha1.ModeAutonomous, pair("", "taken")),
		mapped("unread", 0, v1alpha1.ModeManaged, pair("", "kids")), // which no one reads by destination
	}
	for _, byDestination := range []bool{false, true} {
		r := fleet.Registry{Mapping: fleet.Mapping{Namespace: "argocd", ByDestination: byDestination, Server: func(identity.AgentName) string { return "" }}}
		r.Set(agents)
		for _, a := range agents {
			name, err := identity.ParseAgentName(a.Name)
			if err != nil {
				t.Fatal(err)
			}
			want := ""
			if byDestination && a.Name == "kids" {
				want = "kids"
			}
			if got := r.ChildNamespace(name); got != want {
				t.Errorf("by destination %t: ChildNamespace(%s) = %q", byDestination, a.Name, got)
			}
			if got, is := r.Namespaces()[a.Name]; byDestination && a.Name == "kids" && (!is || got != name) {
				t.Errorf("Namespaces()[%s] = %q: its mirrors would be strays", a.Name, got)
			}
			owner, taken := r.ChildNamespaceTaken(name)
			if wants := byDestination && (a.Name == "taken" || a.Name == "argocd"); taken != wants || wants && (owner.String() == "owner") != (a.Name == "taken") {
				t.Errorf("by destination %t: ChildNamespaceTaken(%s) = %q, %t", byDestination, a.Name, owner, taken)
			}
		}
	}
}

// As long as the number of divisions stays, so does every owner; it may become another
// without need.
func TestDivisions(t *testing.T) {
	a, b := mapped("a", 0, v1alpha1.ModeManaged), mapped("b", 1, v1alpha1.ModeAutonomous)
	with := func(a v1alpha1.Agent, change func(*v1alpha1.Agent)) v1alpha1.Agent {
		change(&a)
		return a
	}
	r := fleet.Registry{Mapping: fleet.Mapping{Namespace: "argocd"}}
	before := r.Divisions()
	for _, test := range []struct {
		what   string
		agents []v1alpha1.Agent
		same   bool
	}{
		{"the first Agents", []v1alpha1.Agent{a, b}, false},
		{"the same", []v1alpha1.Agent{b, a}, true},
		{"another status", []v1alpha1.Agent{with(a, func(a *v1alpha1.Agent) { a.Status.History = &v1alpha1.AgentHistory{ID: "h"} }), b}, true},
		{"shown children", []v1alpha1.Agent{showing(a), b}, false},
		{"no children", []v1alpha1.Agent{a, b}, false},
		{"one that is suspended", []v1alpha1.Agent{with(a, func(a *v1alpha1.Agent) { a.Spec.Suspended = true }), b}, true},
		{"another mode", []v1alpha1.Agent{a, with(b, func(b *v1alpha1.Agent) { b.Spec.Mode = v1alpha1.ModeManaged })}, false},
		{"other namespaces", []v1alpha1.Agent{a, mapped("b", 1, v1alpha1.ModeManaged, pair("", "x"))}, false},
		{"one less", []v1alpha1.Agent{a}, false},
		{"another one", []v1alpha1.Agent{mapped("c", 0, v1alpha1.ModeManaged)}, false},
		{"none", nil, false},
	} {
		r.Set(test.agents)
		if now := r.Divisions(); (now == before) != test.same {
			t.Errorf("%s: Divisions() = %d after %d", test.what, now, before)
		} else {
			before = now
		}
	}
}
