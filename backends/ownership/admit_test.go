package ownership

import (
	"testing"

	"github.com/argomesh/argomesh/backends/admission"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/object/objecttest"
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
			var project *object.Object
			if test.project != nil {
				o := objecttest.Object(t, projectKey(hub, "web"), nil, m{"spec": test.project})
				project = &o
			}
			a := admission.Of("web", project, test.scoped)
			a.Unknown = test.unknown
			if got := hub.Bars(a, objecttest.Object(t, key, nil, m{"spec": spec})); got != test.want {
				t.Errorf("bars() = %q, want %q", got, test.want)
			}
		})
	}
}
