package mirror

import (
	"slices"
	"strings"

	"github.com/argomesh/argomesh/stream"
)

// projectFor returns the spec of a hub AppProject as the agent gets it; false
// when the project is not for the agent. The rules of matching and filtering are
// those users of argocd-agent know. What becomes of each field is in projectFields.
func (r Rules) projectFor(o object) (any, bool) {
	if isForeign(o) {
		return nil, false // a mirror of an autonomous agent's project
	}
	spec := o.clone().child("spec")
	sources, admitted := r.sourcesFor(spec)
	// Whether a cluster is scoped to a project is the hub's to say, by a Secret that no
	// spoke has of itself.
	if !admitted || spec["permitOnlyProjectScopedClusters"] == true && r.ClusterProject != o.key.Name {
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
	setList(spec, "sourceNamespaces", sources)
	setList(spec, "syncWindows", windowsFor(listAt(spec, "syncWindows"), r.isCluster, []string{inClusterName, inClusterServer}))
	setList(spec, "destinationServiceAccounts", accountsFor(listAt(spec, "destinationServiceAccounts"), r.isServer, inClusterServer))
	leaveOut(spec, func(f Field) Fate { return f.Spoke })
	return spec, true
}

// isServer reports whether a pattern of servers matches the agent's cluster.
func (r Rules) isServer(pattern string) bool { return r.destinationMatches("", pattern) }

// isCluster reports whether a pattern of names and servers matches the agent's cluster.
func (r Rules) isCluster(pattern string) bool {
	return globMatches(pattern, r.Agent.String()) || r.isServer(pattern)
}

// isInCluster reports whether a pattern of names and servers matches the Kubernetes
// cluster of a spoke on the spoke itself.
func isInCluster(pattern string) bool {
	return globMatches(pattern, inClusterName) || globMatches(pattern, inClusterServer)
}

func listAt(m map[string]any, key string) []any {
	list, _ := m[key].([]any)
	return list
}

// setList sets a field to a list, and takes it away when there is nothing in it.
func setList(m map[string]any, key string, list []any) {
	if len(list) == 0 {
		delete(m, key)
		return
	}
	m[key] = list
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
	if agent := agentNamed(server); agent != "" {
		return globMatches(agent, r.Agent.String())
	}
	return server != "" && globMatches(server, r.ClusterServer)
}

// projectMirror is the spec of an autonomous agent's project on the hub: open to
// the agent's namespaces and cluster only. Roles stay on the spoke, where the
// people they name log in, unless the Agent has them mirrored. What becomes of each
// field is in projectFields.
func (r Rules) projectMirror(project string, spec map[string]any) map[string]any {
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
	roles, _ := r.mirroredRoles(project, spec)
	if spec["roles"] = roles; len(roles) == 0 {
		delete(spec, "roles")
	}
	setList(spec, "syncWindows", windowsFor(listAt(spec, "syncWindows"), isInCluster, []string{r.Agent.String()}))
	setList(spec, "destinationServiceAccounts", accountsFor(listAt(spec, "destinationServiceAccounts"), func(server string) bool {
		return globMatches(server, inClusterServer)
	}, r.ClusterServer))
	leaveOut(spec, func(f Field) Fate { return f.Hub })
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

// mapped is the spec of an event as it is stored on this side.
func (r Rules) mapped(key stream.EntryKey, spec map[string]any) map[string]any {
	switch {
	case key.Collection == stream.AppProjects && r.Side == stream.Hub:
		return r.projectMirror(key.Name, spec)
	case key.Collection == stream.AppProjects:
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
