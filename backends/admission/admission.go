// Package admission says whether an AppProject of the hub admits an Application of a managed
// agent, by Argo CD's own rules: Admission of a project with its global projects and scoped
// repositories, and NamedProjects, those that Applications name. Pure.
package admission

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/backends/glob"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/stream"
)

// Admission is what an AppProject of the hub admits. The zero value stands for a project
// that does not exist. It is safe for concurrent use.
type Admission struct {
	project string
	// Unknown says why it cannot be told; empty when it can.
	Unknown string
	exists  bool
	// of says what it was made of: two that have the same admit the same.
	of           string
	namespaces   func(namespace string) bool
	destinations []any
	repositories []string
	onlyScoped   bool // permitOnlyProjectScopedClusters
}

// Of reads a project, as its Argo CD asks it. scoped are the repositories that
// Secrets scope to it. project is nil when there is none of that name.
func Of(name string, project *object.Object, scoped []string) Admission {
	a := Admission{project: name}
	if project == nil {
		return a
	}
	spec := project.Child("spec")
	namespaces, _ := object.StringsAt(spec, "sourceNamespaces")
	repositories, _ := object.StringsAt(spec, "sourceRepos")
	a.exists = true
	a.namespaces = mapping.NamespaceMatcher(namespaces)
	a.destinations = object.ListAt(spec, "destinations")
	a.repositories = append(slices.Clone(repositories), scoped...)
	a.onlyScoped = spec["permitOnlyProjectScopedClusters"] == true
	a.of = string(object.Encode([]any{namespaces, a.destinations, a.repositories, a.onlyScoped}))
	return a
}

// Same reports whether two say the same of every Application.
func (a Admission) Same(b Admission) bool {
	return a.exists == b.exists && a.Unknown == b.Unknown && a.of == b.of
}

// Bars says why an AppProject does not admit an Application of a managed agent on the hub,
// with the rule; empty when it does. m is the map of the agent, and clusterProject the
// project to which its cluster Secret is scoped, empty for none.
func (a Admission) Bars(app object.Object, m mapping.Map, clusterProject string) string {
	project := fmt.Sprintf("AppProject %s of the hub", object.Quoted(a.project))
	switch {
	case a.Unknown != "":
		return "what " + project + " permits cannot be told: " + a.Unknown
	case !a.exists:
		return "AppProject " + object.Quoted(a.project) + " does not exist on the hub"
	case app.Key.Namespace != m.Namespace && !a.namespaces(app.Key.Namespace):
		return fmt.Sprintf("%s does not admit Applications of namespace %s: add %s to its spec.sourceNamespaces, or let the Application name another project", project, app.Key.Namespace, app.Key.Namespace)
	}
	spec := app.Child("spec")
	for _, repository := range askedOf(spec) {
		if !permitsRepository(a.repositories, repository) {
			return fmt.Sprintf("%s does not permit repository %s (spec.sourceRepos)", project, object.Quoted(repository))
		}
	}
	destination, _ := spec["destination"].(map[string]any)
	namespace := object.StringAt(destination, "namespace")
	switch {
	case !permitsAgent(m, a.destinations, namespace):
		return fmt.Sprintf("%s does not permit namespace %s of agent %s (spec.destinations)", project, object.Quoted(namespace),
			m.Agent)
	case a.onlyScoped && clusterProject != a.project:
		return fmt.Sprintf("%s permits clusters alone that are scoped to it (spec.permitOnlyProjectScopedClusters), and that of agent %s is not", project, m.Agent)
	}
	return ""
}

// permitsAgent reports whether destinations permit a namespace of the agent's cluster, as
// Argo CD says on the hub (AppProject.IsDestinationPermitted). A server that names the agent
// in its query, as projects from argocd-agent have it, stands for its cluster.
func permitsAgent(m mapping.Map, destinations []any, namespace string) bool {
	permitted := false
	for _, d := range destinations {
		destination, _ := d.(map[string]any)
		name, server, within := object.StringAt(destination, "name"), object.StringAt(destination, "server"),
			object.StringAt(destination, "namespace")
		if agent := mapping.AgentGlob(server); agent != "" && glob.Matches(agent, m.Agent.String()) {
			server = m.ClusterServer
		}
		named := glob.MatchesDestination(name, m.Agent.String())
		served := m.ClusterServer != "" && glob.MatchesDestination(server, m.ClusterServer)
		inside := glob.MatchesDestination(within, namespace)
		switch {
		case (named || served) && inside:
			permitted = true
		case !named && glob.Negated(name), !served && glob.Negated(server) && inside, !inside && glob.Negated(within) &&
			served:
			return false
		}
	}
	return permitted
}

// askedOf are the repositories that Argo CD asks a project about, as they are written. One
// without any counts as one with an empty name.
func askedOf(spec map[string]any) []string {
	repository := func(source any) string {
		m, _ := source.(map[string]any)
		return object.StringAt(m, "repoURL")
	}
	if hydrator, ok := spec["sourceHydrator"].(map[string]any); ok {
		out := []string{repository(hydrator["drySource"])}
		if sync := repository(hydrator["syncSource"]); sync != "" {
			out = append(out, sync)
		}
		return out
	}
	if sources := object.ListAt(spec, "sources"); len(sources) > 0 {
		out := make([]string, len(sources))
		for i, source := range sources {
			out[i] = repository(source)
		}
		return out
	}
	return []string{repository(spec["source"])}
}

// permitsRepository reports whether patterns permit a repository
// (AppProject.IsSourcePermitted). One that begins with an exclamation mark denies what
// matches the rest, and permits all else.
func permitsRepository(patterns []string, repository string) bool {
	repository = normalRepository(repository)
	permitted := false
	for _, pattern := range patterns {
		denied, denies := strings.CutPrefix(pattern, "!")
		switch normal := normalRepository(denied); {
		case denies && repositoryMatches(normal, repository):
			return false
		case denies, normal == "*", repositoryMatches(normal, repository):
			permitted = true
		}
	}
	return permitted
}

// repositoryMatches matches a glob in which a star does not stand for a slash.
func repositoryMatches(pattern, repository string) bool {
	matches, err := glob.Compile(pattern, '/')
	return err == nil && matches(repository)
}

// shortSSH is the form of a URL by which git means SSH.
var shortSSH = regexp.MustCompile("^(ssh://)?([^/:]*?)@[^@]+$")

// normalRepository brings a URL into Argo CD's form (NormalizeGitURL): empty for what is
// no URL.
func normalRepository(repository string) string {
	repository = strings.ToLower(strings.TrimSpace(repository))
	if shortSSH.MatchString(repository) && !strings.HasPrefix(repository, "ssh://") {
		repository = "ssh://" + strings.Replace(repository, ":", "/", 1)
	}
	u, err := url.Parse(strings.TrimSuffix(repository, ".git"))
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(u.String(), "ssh://")
}

// NamedProjects are the AppProjects of the hub that Applications of a managed agent name, with what
// they admit. They hold one project for each Application, which only people of the hub
// make, and one repository for each Secret; a peer adds nothing. The zero value is not
// ready.
type NamedProjects struct {
	project      map[stream.ResourceKey]string                        // of each Application
	Applications map[string]map[stream.ResourceKey]struct{}           // by the project
	Admissions   map[string]Admission                                 // by the project, of those that were asked
	Stale        map[string]bool                                      // projects that may admit something else now
	Barred       map[stream.ResourceKey]string                        // Applications that are not admitted, and why
	scoped       map[stream.ResourceKey]struct{ project, url string } // Secrets that scope a repository to a project
}

// NewNamedProjects returns those of no Application.
func NewNamedProjects() NamedProjects {
	return NamedProjects{
		project: map[stream.ResourceKey]string{}, Applications: map[string]map[stream.ResourceKey]struct{}{},
		Admissions: map[string]Admission{},
		Stale:      map[string]bool{}, Barred: map[stream.ResourceKey]string{},
		scoped: map[stream.ResourceKey]struct{ project, url string }{},
	}
}

// Name notes which project an Application names; empty for one that is gone.
func (g NamedProjects) Name(app stream.ResourceKey, project string) {
	before := g.project[app]
	if before == project {
		return
	}
	if before != "" {
		if delete(g.Applications[before], app); len(g.Applications[before]) == 0 {
			delete(g.Applications, before)
			delete(g.Admissions, before)
			delete(g.Stale, before)
		}
		delete(g.project, app)
	}
	if project == "" {
		delete(g.Barred, app)
		return
	}
	g.project[app] = project
	if g.Applications[project] == nil {
		g.Applications[project] = map[stream.ResourceKey]struct{}{}
	}
	g.Applications[project][app] = struct{}{}
}

// MarkStale notes that a project may admit something else now.
func (g NamedProjects) MarkStale(project string) {
	if _, made := g.Admissions[project]; made {
		g.Stale[project] = true
	}
}

// Scope notes which repository a Secret of the hub scopes to which project; nil for a
// Secret that is gone.
func (g NamedProjects) Scope(key stream.ResourceKey, secret *object.Object) {
	before, now := g.scoped[key], struct{ project, url string }{}
	if secret != nil && secret.Label(object.SecretTypeKey) == object.RepositoryType {
		now.project, now.url = object.SecretField(secret.Child("data"), "project"),
			object.SecretField(secret.Child("data"), "url")
	}
	if now == before {
		return
	}
	if g.scoped[key] = now; now.project == "" {
		delete(g.scoped, key)
	}
	g.MarkStale(before.project)
	g.MarkStale(now.project)
}

// Repositories are those that are scoped to a project, in order.
func (g NamedProjects) Repositories(project string) []string {
	var urls []string
	for _, s := range g.scoped {
		if s.project == project {
			urls = append(urls, s.url)
		}
	}
	slices.Sort(urls)
	return urls
}
