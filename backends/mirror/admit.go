package mirror

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/stream"
)

// An AppProject of the hub says which Applications may use it: of which namespaces, with
// which repositories, for which destinations. Argo CD's controller asks it before it does
// anything, and the hub's leaves the clusters of agents alone. On a spoke the Application
// is in another namespace, and the copy of the project knows nothing of the hub's. So the
// hub asks, by Argo CD's rules (GetAppProject and ValidatePermissions), before anything of
// an Application leaves it.

// admission is what an AppProject of the hub admits. The zero value stands for a project
// that does not exist. It is safe for concurrent use.
type admission struct {
	project string
	// unknown says why it cannot be told; empty when it can.
	unknown string
	exists  bool
	// of says what it was made of: two that have the same admit the same.
	of           string
	namespaces   func(namespace string) bool
	destinations []any
	repositories []string
	onlyScoped   bool // permitOnlyProjectScopedClusters
}

// admissionOf reads a project, as its Argo CD asks it. scoped are the repositories that
// Secrets scope to it. project is nil when there is none of that name.
func admissionOf(name string, project *object, scoped []string) admission {
	a := admission{project: name}
	if project == nil {
		return a
	}
	spec := project.child("spec")
	namespaces, _ := stringsAt(spec, "sourceNamespaces")
	repositories, _ := stringsAt(spec, "sourceRepos")
	a.exists = true
	a.namespaces = NamespaceMatcher(namespaces)
	a.destinations = listAt(spec, "destinations")
	a.repositories = append(slices.Clone(repositories), scoped...)
	a.onlyScoped = spec["permitOnlyProjectScopedClusters"] == true
	a.of = string(encode([]any{namespaces, a.destinations, a.repositories, a.onlyScoped}))
	return a
}

// same reports whether two say the same of every Application.
func (a admission) same(b admission) bool {
	return a.exists == b.exists && a.unknown == b.unknown && a.of == b.of
}

// bars says why an AppProject does not admit an Application of a managed agent on the hub,
// with the rule; empty when it does.
func (r Rules) bars(a admission, app object) string {
	project := fmt.Sprintf("AppProject %s of the hub", told(a.project))
	switch {
	case a.unknown != "":
		return "what " + project + " permits cannot be told: " + a.unknown
	case !a.exists:
		return "AppProject " + told(a.project) + " does not exist on the hub"
	case app.key.Namespace != r.Namespace && !a.namespaces(app.key.Namespace):
		return fmt.Sprintf("%s does not admit Applications of namespace %s: add %s to its spec.sourceNamespaces, or let the Application name another project", project, app.key.Namespace, app.key.Namespace)
	}
	spec := app.child("spec")
	for _, repository := range askedOf(spec) {
		if !permitsRepository(a.repositories, repository) {
			return fmt.Sprintf("%s does not permit repository %s (spec.sourceRepos)", project, told(repository))
		}
	}
	destination, _ := spec["destination"].(map[string]any)
	namespace := stringAt(destination, "namespace")
	switch {
	case !r.permitsAgent(a.destinations, namespace):
		return fmt.Sprintf("%s does not permit namespace %s of agent %s (spec.destinations)", project, told(namespace), r.Agent)
	case a.onlyScoped && r.ClusterProject != a.project:
		return fmt.Sprintf("%s permits clusters alone that are scoped to it (spec.permitOnlyProjectScopedClusters), and that of agent %s is not", project, r.Agent)
	}
	return ""
}

// permitsAgent reports whether destinations permit a namespace of the agent's cluster, as
// Argo CD says on the hub (AppProject.IsDestinationPermitted). A server that names the agent
// in its query, as projects from argocd-agent have it, stands for its cluster.
func (r Rules) permitsAgent(destinations []any, namespace string) bool {
	permitted := false
	for _, d := range destinations {
		destination, _ := d.(map[string]any)
		name, server, within := stringAt(destination, "name"), stringAt(destination, "server"), stringAt(destination, "namespace")
		if agent := agentNamed(server); agent != "" && globMatches(agent, r.Agent.String()) {
			server = r.ClusterServer
		}
		named := matchesDestination(name, r.Agent.String())
		served := r.ClusterServer != "" && matchesDestination(server, r.ClusterServer)
		inside := matchesDestination(within, namespace)
		switch {
		case (named || served) && inside:
			permitted = true
		case !named && negated(name), !served && negated(server) && inside, !inside && negated(within) && served:
			return false
		}
	}
	return permitted
}

// agentNamed is the agent that a server's URL names in its query, by a glob; empty for
// none. argocd-agent's cluster Secrets do, and projects that came from there still may.
func agentNamed(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return ""
	}
	return u.Query().Get("agentName")
}

// askedOf are the repositories that Argo CD asks a project about, as they are written. One
// without any counts as one with an empty name.
func askedOf(spec map[string]any) []string {
	repository := func(source any) string {
		m, _ := source.(map[string]any)
		return stringAt(m, "repoURL")
	}
	if hydrator, ok := spec["sourceHydrator"].(map[string]any); ok {
		out := []string{repository(hydrator["drySource"])}
		if sync := repository(hydrator["syncSource"]); sync != "" {
			out = append(out, sync)
		}
		return out
	}
	if sources := listAt(spec, "sources"); len(sources) > 0 {
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
	matches, err := compileGlob(pattern, '/')
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

// gates are the AppProjects of the hub that Applications of a managed agent name, with what
// they admit. They hold one project for each Application, which only people of the hub
// make, and one repository for each Secret; a peer adds nothing. The zero value is not
// ready.
type gates struct {
	project map[stream.ResourceKey]string                        // of each Application
	named   map[string]map[stream.ResourceKey]struct{}           // by the project
	made    map[string]admission                                 // by the project, of those that were asked
	stale   map[string]bool                                      // projects that may admit something else now
	barred  map[stream.ResourceKey]string                        // Applications that are not admitted, and why
	scoped  map[stream.ResourceKey]struct{ project, url string } // Secrets that scope a repository to a project
}

func newGates() gates {
	return gates{
		project: map[stream.ResourceKey]string{}, named: map[string]map[stream.ResourceKey]struct{}{}, made: map[string]admission{},
		stale: map[string]bool{}, barred: map[stream.ResourceKey]string{}, scoped: map[stream.ResourceKey]struct{ project, url string }{},
	}
}

// name notes which project an Application names; empty for one that is gone.
func (g gates) name(app stream.ResourceKey, project string) {
	before := g.project[app]
	if before == project {
		return
	}
	if before != "" {
		if delete(g.named[before], app); len(g.named[before]) == 0 {
			delete(g.named, before)
			delete(g.made, before)
			delete(g.stale, before)
		}
		delete(g.project, app)
	}
	if project == "" {
		delete(g.barred, app)
		return
	}
	g.project[app] = project
	if g.named[project] == nil {
		g.named[project] = map[stream.ResourceKey]struct{}{}
	}
	g.named[project][app] = struct{}{}
}

// doubt notes that a project may admit something else now.
func (g gates) doubt(project string) {
	if _, made := g.made[project]; made {
		g.stale[project] = true
	}
}

// scope notes which repository a Secret of the hub scopes to which project; nil for a
// Secret that is gone.
func (g gates) scope(key stream.ResourceKey, secret *object) {
	before, now := g.scoped[key], struct{ project, url string }{}
	if secret != nil && secret.label(secretTypeKey) == typeRepository {
		now.project, now.url = secretField(secret.child("data"), "project"), secretField(secret.child("data"), "url")
	}
	if now == before {
		return
	}
	if g.scoped[key] = now; now.project == "" {
		delete(g.scoped, key)
	}
	g.doubt(before.project)
	g.doubt(now.project)
}

// repositories are those that are scoped to a project, in order.
func (g gates) repositories(project string) []string {
	var urls []string
	for _, s := range g.scoped {
		if s.project == project {
			urls = append(urls, s.url)
		}
	}
	slices.Sort(urls)
	return urls
}

// gated reports whether Applications of this link have to be admitted.
func (r Rules) gated() bool { return r.Side == stream.Hub && r.Mode == stream.Managed }

// admission is what an AppProject of the hub admits now. While all that name a changed
// project wait to be looked at again, made keeps what it admitted before.
func (l *loop) admission(project string) admission {
	a, made := l.gates.made[project]
	if made && !l.gates.stale[project] {
		return a
	}
	key := stream.ResourceKey{Kind: stream.AppProject, Namespace: l.rules.Namespace, Name: project}
	current := l.current(key)
	if current != nil {
		merged := l.virtualProject(*current)
		current = &merged
	}
	a = admissionOf(project, current, l.gates.repositories(project))
	if l.globals.err != nil {
		a.unknown = l.globals.err.Error()
	}
	if !l.gates.stale[project] {
		l.gates.made[project] = a
	}
	return a
}

// admit notes which project an Application of the hub names, and whether that admits it.
func (l *loop) admit(key stream.ResourceKey, current *object) {
	switch {
	case !l.rules.gated():
	case key.Kind == stream.AppProject:
		l.gates.doubt(key.Name)
	case key.Kind == stream.Secret:
		l.gates.scope(key, current)
	case key.Kind != stream.Application:
	case current == nil || l.rules.sourceUID(*current) == "" || l.rules.unsendable(*current) != "":
		l.gates.name(key, "")
	default:
		project := projectOf(current.child("spec"))
		l.gates.name(key, project)
		if why := l.rules.bars(l.admission(project), *current); why != "" {
			l.gates.barred[key] = why
		} else {
			delete(l.gates.barred, key)
		}
	}
}

// regate looks again at the Applications of projects that admit something else now.
func (l *loop) regate() {
	for _, project := range slices.Sorted(maps.Keys(l.gates.stale)) {
		before := l.gates.made[project]
		delete(l.gates.made, project)
		delete(l.gates.stale, project)
		if !l.admission(project).same(before) {
			l.lookAtApplications(maps.Keys(l.gates.named[project]))
		}
	}
}

// lookAtApplications observes Applications in order.
func (l *loop) lookAtApplications(apps iter.Seq[stream.ResourceKey]) {
	for _, app := range slices.SortedFunc(apps, func(a, b stream.ResourceKey) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}) {
		l.observe(app)
	}
}

// barredStays reports whether what the spoke has of an Application stays as it is, since the
// project does not admit it any more. Who asks for its end, or that the spoke does not have
// it, gets that.
func (l *loop) barredStays(key stream.ResourceKey, current object) bool {
	return l.gates.barred[key] != "" && !current.deleting() && current.label(ignoreSyncKey) != "true"
}

// passes reports whether content of an Application, or a command for it, may leave the
// hub. What announces its own end always does.
func (l *loop) passes(entry stream.EntryKey, key stream.ResourceKey, leaving bool) bool {
	return entry.Collection != stream.Applications && entry.Collection != stream.Commands || leaving || l.gates.barred[key] == ""
}
