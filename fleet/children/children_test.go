package children

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

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
	c := New(client, "argocd", registry, store)
	c.now = func() time.Time { return now }
	check := func(when, of string, want controller.Children) {
		t.Helper()
		if diff := cmp.Diff(want, c.Of(ctx, parse(of)), cmp.AllowUnexported(identity.AgentName{})); diff != "" {
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
