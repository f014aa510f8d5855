package mirror

import (
	"regexp"
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
	namespaces, _ := spec["sourceNamespaces"].([]any)
	if !matchesAny(namespaces, r.Agent.String()) {
		return nil, false
	}
	destinations, _ := spec["destinations"].([]any)
	var kept []any
	admitted := false
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
				kept = append(kept, m)
			}
			continue
		}
		if !r.destinationMatches(name, server) {
			continue
		}
		m["name"], m["server"] = inClusterName, inClusterServer
		kept = append(kept, m)
		admitted = true
	}
	if !admitted {
		return nil, false
	}
	spec["destinations"] = kept
	delete(spec, "sourceNamespaces")
	delete(spec, "roles")
	return spec, true
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
	return server != "" && globMatches(server, r.ClusterServer)
}

// matchesAny reports whether s matches one of the patterns: globs, or regular
// expressions between slashes, as in Argo CD's sourceNamespaces.
func matchesAny(patterns []any, s string) bool {
	for _, p := range patterns {
		pattern, _ := p.(string)
		if len(pattern) > 2 && strings.HasPrefix(pattern, "/") && strings.HasSuffix(pattern, "/") {
			if re, err := regexp.Compile(pattern[1 : len(pattern)-1]); err == nil && re.MatchString(s) {
				return true
			}
			continue
		}
		if globMatches(pattern, s) {
			return true
		}
	}
	return false
}

// globMatches treats a pattern that does not parse as one that matches nothing.
func globMatches(pattern, s string) bool {
	g, err := glob.Compile(pattern)
	return err == nil && g.Match(s)
}

// projectMirror is the spec of an autonomous agent's project on the hub: open to
// the agent's namespace and cluster only. Roles stay on the spoke, where the
// people they name log in.
func (r Rules) projectMirror(spec map[string]any) map[string]any {
	spec["sourceNamespaces"] = []any{r.Agent.String()}
	destinations, _ := spec["destinations"].([]any)
	for _, d := range destinations {
		if m, ok := d.(map[string]any); ok {
			// A server of "*" beside the name would admit every cluster: Argo CD takes
			// either.
			m["name"] = r.Agent.String()
			delete(m, "server")
		}
	}
	delete(spec, "roles")
	return spec
}

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
		return spec
	}
	destination["name"] = r.Agent.String()
	project, _ := spec["project"].(string)
	if project == "" {
		project = "default" // what Argo CD takes an empty project for
	}
	spec["project"] = r.projectPrefix() + project
	return spec
}
