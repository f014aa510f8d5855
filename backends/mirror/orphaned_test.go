package mirror_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends/departures"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/kit"
)

// Mirrors leave namespaces that are no longer their agent's, without workloads, and
// nothing else does.
func TestStrays(t *testing.T) {
	store, ctx := memory.New(memory.Config{}), t.Context()
	add := func(namespace, name, agent string) {
		key := stream.ResourceKey{Kind: stream.Application, Namespace: namespace, Name: name}
		meta := m{"namespace": namespace, "name": name, "finalizers": []any{cascade}}
		if agent != "" {
			meta["annotations"] = m{"argocd.argoproj.io/source-uid": "u", "argomesh.io/source": `{"agent":"` + agent + `"}`}
		}
		if _, err := store.Create(ctx, key, text(t, m{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": meta})); err != nil {
			t.Fatal(err)
		}
	}
	add("mine", "kept", "edge-1")
	add("mine", "of-another", "edge-2")
	add("left", "stray", "edge-1")
	add("left", "own", "")
	add("left", "of-nobody", "gone")
	add("left", "damaged", "Not A Name")
	one, two := kit.Agent(t, "edge-1"), kit.Agent(t, "edge-2")
	cascades := watchCascades(t, store)
	strays := departures.OrphanedMirrors{
		Store: store,
		Owner: func(namespace string) identity.AgentName {
			return map[string]identity.AgentName{"mine": one}[namespace]
		},
		Registered: func(name identity.AgentName) bool { return name == one || name == two },
	}
	for range 2 {
		if err := strays.Remove(ctx); err != nil {
			t.Fatal(err)
		}
	}
	var left []string
	for _, o := range store.List(stream.Application, "") {
		left = append(left, o.Key.Namespace+"/"+o.Key.Name)
	}
	slices.Sort(left)
	if diff := cmp.Diff([]string{"left/damaged", "left/of-nobody", "left/own", "mine/kept"}, left); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
	if cascades() != 0 {
		t.Error("a mirror went with workloads")
	}
}

// The mirror of a project leaves the hub when its name is that of an agent registered since.
func TestStrayProjects(t *testing.T) {
	store, ctx := memory.New(memory.Config{}), t.Context()
	for name, agent := range map[string]string{
		"edge-web": "edge", "edge-1-web": "edge", "edge-1-own": "edge-1", "edge-1-app": "", "edge-1-old": "gone",
	} {
		meta := m{"namespace": "argocd", "name": name}
		if agent != "" {
			meta["annotations"] = m{"argocd.argoproj.io/source-uid": "u", "argomesh.io/source": `{"agent":"` + agent + `"}`}
		}
		key := stream.ResourceKey{Kind: stream.AppProject, Namespace: "argocd", Name: name}
		if _, err := store.Create(ctx, key, text(t, m{"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": meta})); err != nil {
			t.Fatal(err)
		}
	}
	edge, one := kit.Agent(t, "edge"), kit.Agent(t, "edge-1")
	err := departures.OrphanedMirrors{
		Store: store, Namespace: "argocd",
		Owner: func(string) identity.AgentName { return identity.AgentName{} },
		ProjectOwner: func(name string) identity.AgentName {
			if strings.HasPrefix(name, "edge-1-") {
				return one
			}
			return edge
		},
		Registered: func(name identity.AgentName) bool { return name == edge || name == one },
	}.Remove(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, o := range store.List(stream.AppProject, "argocd") {
		left = append(left, o.Key.Name)
	}
	slices.Sort(left)
	if diff := cmp.Diff([]string{"edge-1-app", "edge-1-old", "edge-1-own", "edge-web"}, left); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
}
