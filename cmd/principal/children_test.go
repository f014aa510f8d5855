package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// Children elsewhere are counted and named, as many as a message names, and are not parked.
func TestChildrenElsewhere(t *testing.T) {
	rules := ownership.Rules{Marks: copies.Marks{Map: mapping.Map{Side: stream.Hub, Mode: stream.Managed, Namespace: "argocd", ByDestination: true, ChildNamespace: "edge-1"}}}
	parked := map[stream.EntryKey]stream.Refusal{
		{Collection: stream.Applications, Namespace: "team", Name: "a"}: {},
		{Collection: stream.Children, Name: "b"}:                        {},
	}
	rest, elsewhere := splitParked(rules, parked)
	if diff := cmp.Diff(parked, rest); diff != "" || elsewhere != (controller.ChildrenElsewhere{}) {
		t.Errorf("elsewhere %+v, parked (-want +got):\n%s", elsewhere, diff)
	}
	for i := range controller.MaxNamed + 1 {
		parked[stream.EntryKey{Collection: stream.Children, Namespace: "team", Name: fmt.Sprintf("c-%02d", i)}] = stream.Refusal{}
	}
	rest, elsewhere = splitParked(rules, parked)
	want := controller.ChildrenElsewhere{
		Total: 11, Names: "team/c-00, team/c-01, team/c-02, team/c-03, team/c-04, team/c-05, team/c-06, team/c-07, team/c-08, team/c-09 and more",
	}
	if len(rest) != 2 || elsewhere != want {
		t.Errorf("%d parked, elsewhere %+v", len(rest), elsewhere)
	}
	rules.ByDestination = false
	if rest, elsewhere = splitParked(rules, parked); len(rest) != len(parked) || elsewhere.Total != 0 {
		t.Errorf("by namespace %d parked, elsewhere %+v", len(rest), elsewhere)
	}
}

// What argocd-server needs for children is asked of its settings and of their projects, and
// not more often than need be.
func TestChildReview(t *testing.T) {
	agent := func(name string) v1alpha1.Agent {
		var a v1alpha1.Agent
		a.Name, a.Spec.Mode, a.Spec.ChildApplications = name, v1alpha1.ModeManaged, v1alpha1.ChildApplicationsMirror
		return a
	}
	parse := func(text string) identity.AgentName {
		name, err := identity.ParseAgentName(text)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	registry := &fleet.Registry{Mapping: fleet.Mapping{Namespace: "argocd", ByDestination: true, Server: func(identity.AgentName) string { return "" }}}
	registry.Set([]v1alpha1.Agent{agent("edge-1"), agent("argocd")})
	store, ctx := memory.New(memory.Config{}), t.Context()
	put := func(kind stream.Kind, namespace, name, rest string) {
		t.Helper()
		raw := `{"apiVersion":"argoproj.io/v1alpha1","kind":"` + string(kind) + `","metadata":{"namespace":"` + namespace + `","name":"` + name + `"` + rest
		if _, err := store.Create(ctx, stream.ResourceKey{Kind: kind, Namespace: namespace, Name: name}, []byte(raw)); err != nil {
			t.Fatal(err)
		}
	}
	child := func(name, of, project string) {
		put(stream.Application, "edge-1", name, `,"annotations":{"argocd.argoproj.io/source-uid":"u","argomesh.io/source":"{\"child\":true,\"agent\":\"`+of+`\"}"}},"spec":{"project":"`+project+`"}}`)
	}
	put(stream.AppProject, "argocd", "open", `},"spec":{"sourceNamespaces":["edge-*"]}}`)
	put(stream.AppProject, "argocd", "shut", `},"spec":{}}`)
	put(stream.AppProject, "argocd", "theirs", `},"spec":{}}`)
	child("a", "edge-1", "open")
	child("b", "edge-1", "shut")
	child("c", "edge-1", "missing")
	child("d", "edge-2", "theirs")
	params := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "argocd", "name": "argocd-cmd-params-cm"},
		"data": map[string]any{"application.namespaces": "team, edge-2"},
	}}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{configMaps: "ConfigMapList"}, params)
	now := time.Now()
	c := newChildReview(client, "argocd", registry, store)
	c.now = func() time.Time { return now }
	check := func(when, of string, want controller.Children) {
		t.Helper()
		if diff := cmp.Diff(want, c.of(ctx, parse(of)), cmp.AllowUnexported(identity.AgentName{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	before := controller.Children{Namespace: "edge-1", Unwatched: true, Projects: []string{"shut"}}
	check("at first", "edge-1", before)
	check("Argo CD's own namespace", "argocd", controller.Children{Taken: true})
	if err := unstructured.SetNestedField(params.Object, "team, /^edge-/", "data", "application.namespaces"); err != nil {
		t.Fatal(err)
	}
	if err := client.Tracker().Update(configMaps, params, "argocd"); err != nil {
		t.Fatal(err)
	}
	asked := len(client.Actions())
	check("a moment later", "edge-1", before)
	if len(client.Actions()) != asked {
		t.Error("the ConfigMap is read at each pass")
	}
	now = now.Add(childrenTime)
	check("once Argo CD watches it", "edge-1", controller.Children{Namespace: "edge-1", Projects: []string{"shut"}})
}
