package hub

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/admission"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	hubstate "github.com/argomesh/argomesh/fleet/hub"
)

// hubApp is an Application of a hub, in a project that admits everything.
func hubApp(namespace, name, destination string, change ...func(map[string]any)) *unstructured.Unstructured {
	o := map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
		"metadata": map[string]any{"namespace": namespace, "name": name, "uid": "uid-" + namespace + name, "labels": map[string]any{}, "annotations": map[string]any{}},
		"spec":     map[string]any{"project": "open", "destination": map[string]any{"name": destination, "namespace": "web"}, "source": map[string]any{"repoURL": "https://git.example.com/r"}},
	}
	for _, f := range change {
		f(o)
	}
	return &unstructured.Unstructured{Object: o}
}

// TestMovesOf is each thing that another mapping may make of an Application.
func TestMovesOf(t *testing.T) {
	edge := func(name string, mode v1alpha1.AgentMode) v1alpha1.Agent {
		return v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "argocd"}, Spec: v1alpha1.AgentSpec{Mode: mode}}
	}
	agents := []v1alpha1.Agent{edge("edge-1", v1alpha1.ModeManaged), edge("edge-2", v1alpha1.ModeManaged), edge("own", v1alpha1.ModeAutonomous)}
	project := func(name string, namespaces ...any) map[string]any {
		return map[string]any{
			"metadata": map[string]any{"name": name, "namespace": "argocd"},
			"spec":     map[string]any{"sourceRepos": []any{"*"}, "sourceNamespaces": namespaces, "destinations": []any{map[string]any{"name": "*", "server": "*", "namespace": "*"}}},
		}
	}
	projects := admission.NewHubProjects("argocd", []map[string]any{project("open", "*"), project("closed", "other")}, nil, nil)
	cfg := principalconfig.Default()
	cfg.Mapping.Namespaces = []string{"edge-1", "team-*"}
	cfg.Mapping.Selector = "!by-hub"
	const (
		byNamespace, byDestination = hubstate.ByNamespace, hubstate.ByDestination
		anew                       = "released there and created again"
	)
	label := func(key string) func(map[string]any) {
		return func(o map[string]any) {
			o["metadata"].(map[string]any)["labels"] = map[string]any{key: ""}
		}
	}
	syncing := func(o map[string]any) { o["operation"] = map[string]any{"sync": map[string]any{}} }
	going := func(o map[string]any) {
		o["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	}
	in := func(name string) func(map[string]any) {
		return func(o map[string]any) { o["spec"].(map[string]any)["project"] = name }
	}
	for name, c := range map[string]struct {
		from hubstate.Mapping
		apps []*unstructured.Unstructured
		want []string // the moves: name, from, to, what happens
		stay int
	}{
		"to another namespace of its spoke": {
			byNamespace, []*unstructured.Unstructured{hubApp("edge-1", "web", "edge-1")},
			[]string{"edge-1/web: agent edge-1, namespace of Argo CD -> agent edge-1, namespace edge-1: happens: " + anew}, 0,
		},
		"nobody would have it": {
			byNamespace, []*unstructured.Unstructured{hubApp("edge-2", "web", "edge-2")},
			[]string{"edge-2/web: agent edge-2, namespace of Argo CD -> no agent: happens: namespace edge-2 is none where Applications of agents may be"}, 0,
		},
		"an agent gets what nobody had": {
			byNamespace, []*unstructured.Unstructured{hubApp("argocd", "web", "edge-1"), hubApp("team-a", "api", "edge-2")},
			[]string{
				"argocd/web: no agent -> agent edge-1, namespace of Argo CD: happens: deploys it",
				"team-a/api: no agent -> agent edge-2, namespace team-a: happens: deploys it",
			}, 0,
		},
		"what is nobody's by either": {
			byNamespace, []*unstructured.Unstructured{
				hubApp("argocd", "web", "in-cluster"), hubApp("elsewhere", "api", "edge-1"), hubApp("argocd", "hub", "edge-1", label("by-hub")),
				hubApp("own", "mirror", "in-cluster"),
			}, nil, 0,
		},
		"and back": {
			byDestination, []*unstructured.Unstructured{hubApp("argocd", "web", "edge-1"), hubApp("edge-1", "api", "edge-1")},
			[]string{
				"argocd/web: agent edge-1, namespace of Argo CD -> no agent: happens: whose Applications are in namespace edge-1",
				"edge-1/api: agent edge-1, namespace edge-1 -> agent edge-1, namespace of Argo CD: happens: " + anew,
			}, 0,
		},
		"another agent's": {
			byNamespace, []*unstructured.Unstructured{hubApp("edge-1", "web", "edge-2")},
			[]string{"edge-1/web: no agent -> agent edge-2, namespace edge-1: happens: deploys it"}, 0,
		},
		"its project does not admit it": {
			byNamespace, []*unstructured.Unstructured{hubApp("edge-1", "web", "edge-1", in("closed"))},
			[]string{"edge-1/web: agent edge-1, namespace of Argo CD -> agent edge-1, namespace edge-1: happens: its AppProject keeps it on the hub"}, 0,
		},
		"an operation is under way": {
			byNamespace, []*unstructured.Unstructured{hubApp("edge-1", "web", "edge-1", syncing)},
			[]string{"edge-1/web: agent edge-1, namespace of Argo CD -> agent edge-1, namespace edge-1: happens: an operation of it is under way: wait"}, 0,
		},
		"it is being deleted": {
			byNamespace, []*unstructured.Unstructured{hubApp("edge-1", "web", "edge-1", going)},
			[]string{"edge-1/web: agent edge-1, namespace of Argo CD -> agent edge-1, namespace edge-1: happens: it is being deleted: wait"}, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			to := byDestination
			if c.from == byDestination {
				to = byNamespace
			}
			moves, stay := movesOf(c.apps, mappedBy(c.from, cfg, agents), mappedBy(to, cfg, agents), projects)
			if len(moves) != len(c.want) || stay != c.stay {
				t.Fatalf("movesOf() = %v, %d, want %q, %d", moves, stay, c.want, c.stay)
			}
			for i, m := range moves {
				places, happens, _ := strings.Cut(c.want[i], ": happens: ")
				if got := fmt.Sprintf("%s: %s -> %s", m.name, m.from, m.to); got != places || !strings.Contains(m.does(), happens) {
					t.Errorf("got  %s: happens: %s\nwant %s", got, m.does(), c.want[i])
				}
			}
		})
	}
	stays := func(m hubstate.Mapping) (int, int) {
		moves, stay := movesOf([]*unstructured.Unstructured{hubApp("argocd", "web", "edge-1")}, mappedBy(m, cfg, agents), mappedBy(m, cfg, agents), projects)
		return len(moves), stay
	}
	if moved, stay := stays(byDestination); moved != 0 || stay != 1 {
		t.Errorf("by the mapping that is in force %d move and %d stay", moved, stay)
	}
}
