package mirror

import (
	"fmt"
	"testing"

	"github.com/argomesh/argomesh/stream"
)

// TestBars says which rule of which project keeps an Application on the hub. That the rules
// are Argo CD's is held in test/argocd.
func TestBars(t *testing.T) {
	hub := ruleSet(t, stream.Hub, stream.Managed)
	open := func(change m) m {
		spec := m{"sourceNamespaces": []any{"edge-*"}, "sourceRepos": []any{"*"}, "destinations": []any{m{"name": "edge-1", "namespace": "*"}}}
		for name, value := range change {
			spec[name] = value
		}
		return spec
	}
	for name, test := range map[string]struct {
		project m // nil for none
		app     m // beside the destination
		scoped  []string
		unknown string
		own     bool // in Argo CD's namespace
		want    string
	}{
		"all is permitted":    {project: open(nil)},
		"there is no project": {want: `AppProject "web" does not exist on the hub`},
		"its namespace": {
			project: open(m{"sourceNamespaces": []any{"edge-2"}}),
			want:    `AppProject "web" of the hub does not admit Applications of namespace edge-1: add edge-1 to its spec.sourceNamespaces, or let the Application name another project`,
		},
		"Argo CD's own namespace is always admitted": {project: open(m{"sourceNamespaces": nil}), own: true},
		"its repository": {
			project: open(m{"sourceRepos": []any{"https://git.test/*"}}), app: m{"source": m{"repoURL": "https://git.test/a/b"}},
			want: `AppProject "web" of the hub does not permit repository "https://git.test/a/b" (spec.sourceRepos)`,
		},
		"one of its repositories": {
			project: open(m{"sourceRepos": []any{"https://git.test/*"}}), app: m{"sources": []any{m{"repoURL": "https://git.test/a"}, m{"repoURL": "https://other.test"}}},
			want: `AppProject "web" of the hub does not permit repository "https://other.test" (spec.sourceRepos)`,
		},
		"the repository of its hydrator": {
			project: open(m{"sourceRepos": []any{"https://git.test/*"}}),
			app:     m{"sourceHydrator": m{"drySource": m{"repoURL": "https://git.test/a"}, "syncSource": m{"repoURL": "https://git.test/b/c"}}},
			want:    `AppProject "web" of the hub does not permit repository "https://git.test/b/c" (spec.sourceRepos)`,
		},
		"a repository that a Secret scopes to the project": {
			project: open(m{"sourceRepos": nil}), app: m{"source": m{"repoURL": "https://git.test/a/b"}}, scoped: []string{"https://git.test/a/b.git"},
		},
		"its destination": {
			project: open(m{"destinations": []any{m{"name": "edge-1", "namespace": "other"}}}),
			want:    `AppProject "web" of the hub does not permit namespace "web" of agent edge-1 (spec.destinations)`,
		},
		"a server that names the agent, as with argocd-agent": {
			project: open(m{"destinations": []any{m{"server": "https://hub:9090?agentName=edge-1", "namespace": "web"}}}),
		},
		"a server that names another agent": {
			project: open(m{"destinations": []any{m{"server": "https://hub:9090?agentName=edge-2", "namespace": "web"}}}),
			want:    `AppProject "web" of the hub does not permit namespace "web" of agent edge-1 (spec.destinations)`,
		},
		"clusters that are scoped to it alone": {
			project: open(m{"permitOnlyProjectScopedClusters": true}),
			want:    `AppProject "web" of the hub permits clusters alone that are scoped to it (spec.permitOnlyProjectScopedClusters), and that of agent edge-1 is not`,
		},
		"nobody can tell": {project: open(nil), unknown: "globalProjects", want: `what AppProject "web" of the hub permits cannot be told: globalProjects`},
	} {
		t.Run(name, func(t *testing.T) {
			key := appKey(hub)
			if test.own {
				key.Namespace = hub.Namespace
			}
			spec := m{"project": "web", "destination": m{"name": "edge-1", "namespace": "web"}, "source": m{"repoURL": "https://git.test/a"}}
			for field, value := range test.app {
				delete(spec, "source")
				spec[field] = value
			}
			var project *object
			if test.project != nil {
				o := makeObject(t, projectKey(hub, "web"), nil, m{"spec": test.project})
				project = &o
			}
			a := admissionOf("web", project, test.scoped)
			a.unknown = test.unknown
			if got := hub.bars(a, makeObject(t, key, nil, m{"spec": spec})); got != test.want {
				t.Errorf("bars() = %q, want %q", got, test.want)
			}
		})
	}
}

// TestGatesHoldNoMore than one project for each Application, however often each names another
// one: nobody but who makes Applications on the hub can have them grow.
func TestGatesHoldNoMore(t *testing.T) {
	g := newGates()
	const apps = 100
	for i := range 50 * apps {
		key := stream.ResourceKey{Kind: stream.Application, Namespace: "edge-1", Name: fmt.Sprint(i % apps)}
		project := fmt.Sprint("p", i)
		g.name(key, project)
		g.made[project], g.barred[key] = admission{project: project}, "why"
		g.doubt(project)
		for what, n := range map[string]int{"Applications": len(g.project), "projects": len(g.named), "made": len(g.made), "stale": len(g.stale), "barred": len(g.barred)} {
			if n > min(i+1, apps) {
				t.Fatalf("of %d Applications it holds %d %s", min(i+1, apps), n, what)
			}
		}
	}
}

// TestGatesForget checks that nothing is remembered of projects and Secrets that are gone.
func TestGatesForget(t *testing.T) {
	g := newGates()
	app := func(name string) stream.ResourceKey {
		return stream.ResourceKey{Kind: stream.Application, Namespace: "edge-1", Name: name}
	}
	g.name(app("a"), "web")
	g.name(app("b"), "web")
	g.made["web"] = admission{project: "web"}
	key := stream.ResourceKey{Kind: stream.Secret, Namespace: "argocd", Name: "s"}
	secret := makeObject(t, key, m{"labels": m{secretTypeKey: typeRepository}}, m{"data": m{"project": "d2Vi", "url": "aHR0cHM6Ly94"}})
	g.scope(key, &secret)
	if urls := g.repositories("web"); !g.stale["web"] || len(urls) != 1 || urls[0] != "https://x" {
		t.Errorf("stale %v, repositories %v", g.stale, urls)
	}
	g.barred[app("a")] = "why"
	g.name(app("a"), "other")
	g.name(app("b"), "")
	g.name(app("a"), "")
	g.scope(key, nil)
	if n := len(g.project) + len(g.named) + len(g.made) + len(g.stale) + len(g.barred) + len(g.scoped); n != 0 {
		t.Errorf("%d things are remembered: %+v", n, g)
	}
}
