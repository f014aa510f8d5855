package admission

import (
	"fmt"
	"testing"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
	"github.com/argomesh/argomesh/stream"
)

// TestGatesHoldNoMore than one project for each Application, however often each names another
// one: no one but who makes Applications on the hub can have them grow.
func TestGatesHoldNoMore(t *testing.T) {
	g := NewNamedProjects()
	const apps = 100
	for i := range 50 * apps {
		key := stream.ResourceKey{Kind: stream.Application, Namespace: "edge-1", Name: fmt.Sprint(i % apps)}
		project := fmt.Sprint("p", i)
		g.Name(key, project)
		g.Admissions[project], g.Barred[key] = Admission{project: project}, "why"
		g.MarkStale(project)
		for what, n := range map[string]int{"Applications": len(g.project), "projects": len(g.Applications), "made": len(g.Admissions), "stale": len(g.Stale), "barred": len(g.Barred)} {
			if n > min(i+1, apps) {
				t.Fatalf("of %d Applications it holds %d %s", min(i+1, apps), n, what)
			}
		}
	}
}

// TestGatesForget checks that nothing is remembered of projects and Secrets that are gone.
func TestGatesForget(t *testing.T) {
	g := NewNamedProjects()
	app := func(name string) stream.ResourceKey {
		return stream.ResourceKey{Kind: stream.Application, Namespace: "edge-1", Name: name}
	}
	g.Name(app("a"), "web")
	g.Name(app("b"), "web")
	g.Admissions["web"] = Admission{project: "web"}
	key := stream.ResourceKey{Kind: stream.Secret, Namespace: "argocd", Name: "s"}
	secret := objecttest.Object(t, key, m{"labels": m{object.SecretTypeKey: object.RepositoryType}}, m{"data": m{"project": "d2Vi", "url": "aHR0cHM6Ly94"}})
	g.Scope(key, &secret)
	if urls := g.Repositories("web"); !g.Stale["web"] || len(urls) != 1 || urls[0] != "https://x" {
		t.Errorf("stale %v, repositories %v", g.Stale, urls)
	}
	g.Barred[app("a")] = "why"
	g.Name(app("a"), "other")
	g.Name(app("b"), "")
	g.Name(app("a"), "")
	g.Scope(key, nil)
	if n := len(g.project) + len(g.Applications) + len(g.Admissions) + len(g.Stale) + len(g.Barred) + len(g.scoped); n != 0 {
		t.Errorf("%d things are remembered: %+v", n, g)
	}
}

type m = map[string]any
