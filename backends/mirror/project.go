package mirror

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/gobwas/glob"

	"github.com/argomesh/argomesh/stream"
)

// projectFor returns the spec of a hub AppProject as the agent gets it; false
// when the project is not for the agent. The rules of matching and filtering are
// those users of argocd-agent know.
func (r Rules) projectFor(o object) (any, bool) {
	if o.annotation(sourceUIDKey) != "" {
		return nil, false // a mirror of an autonomous agent's project
	}
	spec := o.clone().child("spec")
	sources, admitted := r.sourcesFor(spec)
	if !admitted {
		return nil, false
	}
	destinations, _ := spec["destinations"].([]any)
	var kept []any
	admitted = false
	for _, d := range destinations {
		m, _ := d.(map[string]any)
		name, server := stringAt(m, "name"), stringAt(m, "server")
		if denied, found := strings.CutPrefix(name, "!"); found {
			if globMatches(denied, r.Agent.String()) {
				return nil, false
			}
			continue
		}
		if denied, found := strings.CutPrefix(server, "!"); found {
			// Argo CD denies by server in the namespaces of the entry alone.
			if globMatches(denied, r.ClusterServer) {
				delete(m, "name")
				m["server"] = "!" + inClusterServer
				kept = withDestination(kept, m)
			}
			continue
		}
		if !r.destinationMatches(name, server) {
			continue
		}
		m["name"], m["server"] = inClusterName, inClusterServer
		kept = withDestination(kept, m)
		admitted = true
	}
	if !admitted {
		return nil, false
	}
	spec["destinations"] = kept
	delete(spec, "sourceNamespaces")
	if len(sources) > 0 {
		spec["sourceNamespaces"] = sources
	}
	delete(spec, "roles")
	return spec, true
}

// withDestination adds a destination unless it is there: several may have become one,
// and Argo CD takes no project in which one is twice.
func withDestination(kept []any, added map[string]any) []any {
	if slices.ContainsFunc(kept, func(k any) bool {
		m, _ := k.(map[string]any)
		return stringAt(m, "name") == stringAt(added, "name") && stringAt(m, "server") == stringAt(added, "server") &&
			stringAt(m, "namespace") == stringAt(added, "namespace")
	}) {
		return kept
	}
	return append(kept, added)
}

// sourcesFor are the sourceNamespaces of a hub AppProject as the spoke has them; false
// when the project admits none of the agent's namespaces. By destination they are the
// hub's own. Else a spoke's Argo CD, whose own namespace every project admits, is told
// of the others.
func (r Rules) sourcesFor(spec map[string]any) (sources []any, admitted bool) {
	list, _ := spec["sourceNamespaces"].([]any)
	if r.byDestination() {
		return list, true
	}
	patterns := make([]string, len(list))
	for i, p := range list {
		patterns[i], _ = p.(string)
	}
	for _, p := range r.pairs() {
		if MatchesNamespace(patterns, p.Hub) {
			admitted = true
			if p.Spoke != "" {
				sources = append(sources, p.Spoke)
			}
		}
	}
	return sources, admitted
}

const (
	inClusterName   = "in-cluster"
	inClusterServer = "https://kubernetes.default.svc"
)

// destinationMatches reports whether a project's destination admits the agent:
// by the glob of its name, or, without a name, by the server of its cluster.
func (r Rules) destinationMatches(name, server string) bool {
	if name != "" {
		return globMatches(name, r.Agent.String())
	}
	// argocd-agent's cluster Secrets name the agent in a query, and projects that came
	// from there still do.
	if u, err := url.Parse(server); err == nil && u.Query().Get("agentName") != "" {
		return globMatches(u.Query().Get("agentName"), r.Agent.String())
	}
	return server != "" && globMatches(server, r.ClusterServer)
}

// globMatches treats a pattern that does not parse as one that matches nothing.
func globMatches(pattern, s string) bool {
	switch {
	case pattern == "*":
		return true
	case !strings.ContainsAny(pattern, `*?[]{}\`): // a name, as nearly always
		return pattern == s
	}
	g, err := glob.Compile(pattern)
	return err == nil && g.Match(s)
}

// projectMirror is the spec of an autonomous agent's project on the hub: open to
// the agent's namespaces and cluster only. Roles stay on the spoke, where the
// people they name log in.
func (r Rules) projectMirror(spec map[string]any) map[string]any {
	spec["sourceNamespaces"] = anyList(r.namespaces())
	destinations, _ := spec["destinations"].([]any)
	kept := []any{}
	for _, d := range destinations {
		m, ok := d.(map[string]any)
		if ok && !strings.HasPrefix(stringAt(m, "name"), "!") && !strings.HasPrefix(stringAt(m, "server"), "!") {
			// A server of "*" beside the name would admit every cluster: Argo CD takes
			// either.
			m["name"] = r.Agent.String()
			delete(m, "server")
			kept = withDestination(kept, m)
		}
	}
	spec["destinations"] = kept // what the spoke denies does not become a permission
	delete(spec, "roles")
	return spec
}

// defaultProject is what Argo CD takes an empty project for.
const defaultProject = "default"

// projectOf is the project of an Application with that spec.
func projectOf(spec map[string]any) string {
	if project := stringAt(spec, "project"); project != "" {
		return project
	}
	return defaultProject
}

// normalize brings the spec of an Application into the form to which a spoke's
// application controller brings it (Argo CD 3.5, NormalizeApplicationSpec). A hub
// without a controller keeps what people wrote, and without this the two would
// undo each other for ever.
func normalize(spec map[string]any) {
	if project, ok := spec["project"].(string); ok && project == "" {
		spec["project"] = defaultProject
	}
	if policy, ok := spec["syncPolicy"].(map[string]any); ok {
		zero := true
		for name, value := range policy {
			// An empty "automated" is a setting.
			zero = zero && (value == nil || name == "syncOptions" && isZero(value))
		}
		if zero {
			delete(spec, "syncPolicy")
		}
	}
	sources, _ := spec["sources"].([]any)
	if len(sources) == 0 {
		sources = []any{spec["source"]}
	}
	for _, s := range sources {
		source, _ := s.(map[string]any)
		for _, tool := range []string{"kustomize", "helm"} {
			if settings, ok := source[tool].(map[string]any); ok && !slices.ContainsFunc(slices.Collect(maps.Values(settings)), isSet) {
				delete(source, tool)
			}
		}
		if directory, ok := source["directory"].(map[string]any); ok && isZero(directory["recurse"]) && isZero(directory["jsonnet"]) {
			delete(directory, "recurse")
			delete(directory, "jsonnet")
			if isZero(directory["exclude"]) && isZero(directory["include"]) {
				delete(source, "directory")
			}
		}
	}
}

// isZero reports whether a value is the one that Go leaves out as empty.
func isZero(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case bool:
		return !v
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

func isSet(v any) bool { return !isZero(v) }

// mapped is the spec of an event as it is stored on this side.
func (r Rules) mapped(c stream.Collection, spec map[string]any) map[string]any {
	switch {
	case c == stream.AppProjects && r.Side == stream.Hub:
		return r.projectMirror(spec)
	case c == stream.AppProjects:
		return spec
	}
	destination, _ := spec["destination"].(map[string]any)
	if destination == nil {
		destination = map[string]any{}
		spec["destination"] = destination
	}
	delete(destination, "server")
	if r.Side == stream.Spoke {
		destination["name"] = inClusterName
		normalize(spec)
		return spec
	}
	destination["name"] = r.Agent.String()
	project := projectOf(spec)
	if r.prefixed() {
		project = r.projectPrefix() + project
	}
	spec["project"] = project
	return spec
}
