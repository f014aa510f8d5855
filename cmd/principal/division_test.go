package main

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/division"
	"github.com/argomesh/argomesh/fleet/hub"
	"github.com/argomesh/argomesh/fleet/links"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// What the registry says is what the links are told.
func TestOwnership(t *testing.T) {
	store, ctx := memory.New(memory.Config{}), t.Context()
	add := func(namespace, name, destination string) stream.ResourceKey {
		key := stream.ResourceKey{Kind: stream.Application, Namespace: namespace, Name: name}
		if _, err := store.Create(ctx, key, []byte(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"namespace":"`+
			namespace+`","name":"`+name+`"},"spec":{"destination":{"name":"`+destination+`"}}}`)); err != nil {
			t.Fatal(err)
		}
		return key
	}
	var edge, auto v1alpha1.Agent
	edge.Name, edge.Spec.Mode = "edge-1", v1alpha1.ModeManaged
	auto.Name, auto.Spec.Mode = "auto", v1alpha1.ModeAutonomous
	auto.Spec.Mapping = &v1alpha1.AgentMapping{Namespaces: []v1alpha1.MappedNamespace{{Hub: "auto-apps"}, {Spoke: "t", Hub: "auto-t"}}}
	names := func(list []identity.AgentName) []string {
		var out []string
		for _, name := range list {
			out = append(out, name.String())
		}
		return out
	}
	parse := func(s string) identity.AgentName {
		name, err := identity.ParseAgentName(s)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	listed := func(o *division.Division, r ownership.Rules) []string {
		var out []string
		for _, object := range o.List(r) {
			out = append(out, object.Key.Namespace+"/"+object.Key.Name)
		}
		slices.Sort(out)
		return out
	}
	own, mirrored := add("edge-1", "a", "edge-1"), add("auto-t", "b", "auto")
	apart, elsewhere := add("argocd", "c", "edge-1"), add("argocd", "d", "in-cluster")
	cfg := principalconfig.Default()
	links := func(o *division.Division, registry *fleet.Registry) *links.Links {
		return links.New(links.Config{
			Hub: hub.NewState(hub.Store{}, nil, zerolog.Nop()), Owners: func() *division.Division { return o },
			Rules: func(decided hub.Hub, name identity.AgentName, a v1alpha1.Agent) ownership.Rules {
				return cfg.Rules(registry, decided, name, a)
			},
		})
	}

	t.Run("by namespace", func(t *testing.T) {
		registry := &fleet.Registry{Mapping: cfg.Owners(hub.Mapping(cfg.Mapping.By))}
		o := division.New(registry, store)
		registry.Set([]v1alpha1.Agent{edge, auto})
		o.Assign()
		for key, want := range map[stream.ResourceKey][]string{own: {"edge-1"}, mirrored: {"auto"}, apart: nil, elsewhere: nil} {
			if diff := cmp.Diff(want, names(o.Changed(key))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", key, diff)
			}
		}
		rules := links(o, registry).RulesOf(parse("edge-1"), edge)
		if diff := cmp.Diff([]string{"edge-1/a"}, listed(o, rules)); diff != "" || o.Of(rules) != backends.Store(store) {
			t.Errorf("edge-1 (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"auto-t/b"}, listed(o, links(o, registry).RulesOf(parse("auto"), auto))); diff != "" {
			t.Errorf("auto (-want +got):\n%s", diff)
		}
	})
	cfg.Mapping = principalconfig.Mapping{By: "destination"}
	t.Run("by destination", func(t *testing.T) {
		registry := &fleet.Registry{Mapping: cfg.Owners(hub.Mapping(cfg.Mapping.By))}
		o := division.New(registry, store)
		registry.Set([]v1alpha1.Agent{edge, auto})
		if o.Known() {
			t.Error("it counts as known whose each Application is before anybody looked")
		}
		if moved := o.Assign(); moved != nil || !o.Known() {
			t.Errorf("links that begin with a look at all they have are told of %v", moved)
		}
		if registry.Set([]v1alpha1.Agent{auto}); len(o.Assign()[parse("edge-1")]) != 1 {
			t.Error("what was an Agent's before it went is not told")
		}
		registry.Set([]v1alpha1.Agent{edge, auto})
		o.Assign()
		for key, want := range map[stream.ResourceKey][]string{own: nil, mirrored: {"auto"}, apart: {"edge-1"}, elsewhere: nil} {
			if diff := cmp.Diff(want, names(o.Changed(key))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", key, diff)
			}
		}
		rules := links(o, registry).RulesOf(parse("edge-1"), edge)
		if diff := cmp.Diff([]string{"argocd/c"}, listed(o, rules)); diff != "" || rules.Pairs != nil {
			t.Errorf("edge-1 (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"auto-t/b"}, listed(o, links(o, registry).RulesOf(parse("auto"), auto))); diff != "" {
			t.Errorf("auto (-want +got):\n%s", diff)
		}

		// Children are the agent's in the namespace of its name from when they are to be shown.
		child := stream.ResourceKey{Kind: stream.Application, Namespace: "edge-1", Name: "child"}
		if _, err := store.Create(ctx, child, []byte(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"namespace":"edge-1","name":"child",`+
			`"annotations":{"argocd.argoproj.io/source-uid":"u","argomesh.io/source":"{\"child\":true,\"agent\":\"edge-1\"}"}},"spec":{"destination":{"name":"edge-1"}}}`)); err != nil {
			t.Fatal(err)
		}
		if got := o.Changed(child); got != nil || rules.Children || rules.ChildNamespace != "" {
			t.Errorf("a child that is not to be shown is told to %v, by %+v", got, rules)
		}
		shows := edge
		shows.Spec.ChildApplications = v1alpha1.ChildApplicationsMirror
		registry.Set([]v1alpha1.Agent{shows, auto})
		if diff := cmp.Diff([]stream.ResourceKey{child}, o.Assign()[parse("edge-1")]); diff != "" {
			t.Errorf("what the agent has of a sudden (-want +got):\n%s", diff)
		}
		rules = links(o, registry).RulesOf(parse("edge-1"), shows)
		if diff := cmp.Diff([]string{"argocd/c", "edge-1/child"}, listed(o, rules)); diff != "" || !rules.Children || rules.ChildNamespace != "edge-1" {
			t.Errorf("edge-1 with its child (-want +got):\n%s", diff)
		}
	})
}
