// Package appproject says what becomes of an AppProject on its way: how the hub's is narrowed to
// one agent's spoke, and how a spoke's is mirrored on the hub so that it is about its mirrors
// alone. Pure.
package appproject

import (
	"strings"

	"github.com/argomesh/argomesh/backends/appspec"
	"github.com/argomesh/argomesh/backends/glob"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/record"
)

// Rules say what becomes of the AppProjects of an agent on the other side. Their methods are
// pure.
type Rules struct {
	// Map is the hub's.
	mapping.Map
	// ClusterProject is the project to which the agent's cluster Secret scopes the cluster;
	// empty for none. Used on the hub.
	ClusterProject string
	// MirrorsRoles says that mirrors have the roles of their originals, as far as those are
	// about the mirrors. Used on the hub of an autonomous agent.
	MirrorsRoles bool
}

// ForSpoke returns the spec of a hub AppProject as the agent gets it; false
// when the project is not for the agent. The rules of matching and filtering are
// those users of argocd-agent know. What becomes of each field is in appspec.Fields.
func (r Rules) ForSpoke(o object.Object) (any, bool) {
	if record.IsForeign(o) {
		return nil, false // a mirror of an autonomous agent's project
	}
	spec := o.Clone().Child("spec")
	sources, admitted := r.sourcesFor(spec)
	// Whether a cluster is scoped to a project is the hub's to say, by a Secret that no
	// spoke has of itself.
	if !admitted || spec["permitOnlyProjectScopedClusters"] == true && r.ClusterProject != o.Key.Name {
		return nil, false
	}
	destinations, _ := spec["destinations"].([]any)
	kept := keptDestinations{destinations: []any{}, there: map[[3]string]bool{}}
	admitted = false
	for _, d := range destinations {
		m, _ := d.(map[string]any)
		name, server := object.StringAt(m, "name"), object.StringAt(m, "server")
		if denied, found := strings.CutPrefix(name, "!"); found {
			if glob.Matches(denied, r.Agent.String()) {
				return nil, false
			}
			continue
		}
		if denied, found := strings.CutPrefix(server, "!"); found {
			// Argo CD denies by server in the namespaces of the entry alone.
			if glob.Matches(denied, r.ClusterServer) {
				delete(m, "name")
				m["server"] = "!" + object.InClusterServer
				kept.add(m)
			}
			continue
		}
		if !r.destinationMatches(name, server) {
			continue
		}
		m["name"], m["server"] = object.InClusterName, object.InClusterServer
		kept.add(m)
		admitted = true
	}
	if !admitted {
		return nil, false
	}
	spec["destinations"] = kept.destinations
	object.SetList(spec, "sourceNamespaces", sources)
	object.SetList(spec, "syncWindows",
		windowsFor(object.ListAt(spec, "syncWindows"), r.isCluster, []string{object.InClusterName, object.InClusterServer}))
	object.SetList(spec, "destinationServiceAccounts",
		accountsFor(object.ListAt(spec, "destinationServiceAccounts"), r.isServer, object.InClusterServer))
	appspec.LeaveOut(spec, func(f appspec.Field) appspec.Fate { return f.Spoke })
	return spec, true
}

// isServer reports whether a pattern of servers matches the agent's cluster.
func (r Rules) isServer(pattern string) bool { return r.destinationMatches("", pattern) }

// isCluster reports whether a pattern of names and servers matches the agent's cluster.
func (r Rules) isCluster(pattern string) bool {
	return glob.Matches(pattern, r.Agent.String()) || r.isServer(pattern)
}

// isInCluster reports whether a pattern of names and servers matches the Kubernetes
// cluster of a spoke on the spoke itself.
func isInCluster(pattern string) bool {
	return glob.Matches(pattern, object.InClusterName) || glob.Matches(pattern, object.InClusterServer)
}

// keptDestinations are destinations of which none is twice: several may have become one, and Argo CD takes no
// project in which one is.
type keptDestinations struct {
	destinations []any
	there        map[[3]string]bool // by name, server and namespace
}

func (k *keptDestinations) add(added map[string]any) {
	of := [3]string{object.StringAt(added, "name"), object.StringAt(added, "server"), object.StringAt(added, "namespace")}
	if !k.there[of] {
		k.there[of] = true
		k.destinations = append(k.destinations, added)
	}
}

// sourcesFor are the sourceNamespaces of a hub AppProject as the spoke has them; false
// when the project admits none of the agent's namespaces. By destination they are the
// hub's own. Else a spoke's Argo CD, whose own namespace every project admits, is told
// of the others.
func (r Rules) sourcesFor(spec map[string]any) (sources []any, admitted bool) {
	list, _ := spec["sourceNamespaces"].([]any)
	if r.Divided() {
		return list, true
	}
	patterns := make([]string, len(list))
	for i, p := range list {
		patterns[i], _ = p.(string)
	}
	for _, p := range r.NamespacePairs() {
		if mapping.MatchesNamespace(patterns, p.Hub) {
			admitted = true
			if p.Spoke != "" {
				sources = append(sources, p.Spoke)
			}
		}
	}
	return sources, admitted
}

// destinationMatches reports whether a project's destination admits the agent:
// by the glob of its name, or, without a name, by the server of its cluster.
func (r Rules) destinationMatches(name, server string) bool {
	if name != "" {
		return glob.Matches(name, r.Agent.String())
	}
	if agent := mapping.AgentGlob(server); agent != "" {
		return glob.Matches(agent, r.Agent.String())
	}
	return server != "" && glob.Matches(server, r.ClusterServer)
}

// Mirror is the spec of an autonomous agent's project on the hub: open to
// the agent's namespaces and cluster only. Roles stay on the spoke, where the
// people they name log in, unless the Agent has them mirrored. What becomes of each
// field is in appspec.Fields.
func (r Rules) Mirror(project string, spec map[string]any) map[string]any {
	spec["sourceNamespaces"] = object.AnyList(r.LocalNamespaces())
	destinations, _ := spec["destinations"].([]any)
	kept := keptDestinations{destinations: []any{}, there: map[[3]string]bool{}}
	for _, d := range destinations {
		m, ok := d.(map[string]any)
		if ok && !strings.HasPrefix(object.StringAt(m, "name"), "!") &&
			!strings.HasPrefix(object.StringAt(m, "server"), "!") {
			// A server of "*" beside the name would admit every cluster: Argo CD takes
			// either.
			m["name"] = r.Agent.String()
			delete(m, "server")
			kept.add(m)
		}
	}
	spec["destinations"] = kept.destinations // what the spoke denies does not become a permission
	roles, _ := r.MirroredRoles(project, spec)
	if spec["roles"] = roles; len(roles) == 0 {
		delete(spec, "roles")
	}
	object.SetList(spec, "syncWindows",
		windowsFor(object.ListAt(spec, "syncWindows"), isInCluster, []string{r.Agent.String()}))
	object.SetList(spec, "destinationServiceAccounts",
		accountsFor(object.ListAt(spec, "destinationServiceAccounts"), func(server string) bool {
			return glob.Matches(server, object.InClusterServer)
		}, r.ClusterServer))
	appspec.LeaveOut(spec, func(f appspec.Field) appspec.Fate { return f.Hub })
	return spec
}
