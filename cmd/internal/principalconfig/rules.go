package principalconfig

import (
	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/fleet/hub"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// Owners is what the registry of agents needs of the configuration, where a mapping is in
// force.
func (c Config) Owners(inForce hub.Mapping) fleet.Mapping {
	return fleet.Mapping{
		Namespace: c.Namespace, ByDestination: inForce == hub.ByDestination,
		Admits: mapping.NamespaceMatcher(c.Mapping.Namespaces),
		Server: func(name identity.AgentName) string { return controller.ClusterServer(c.ResourceProxy.URL, name) },
	}
}

// Rules are the rules of the hub's side of the link of agent a, which the registry has
// under name, by what the hub has decided; the zero Hub where that is not known.
func (c Config) Rules(registry *fleet.Registry, decided hub.Hub, name identity.AgentName,
	a v1alpha1.Agent) ownership.Rules {
	rules := ownership.Rules{
		Marks: copies.Marks{
			Map: mapping.Map{
				Side: stream.Hub, Mode: fleet.ModeOf(a.Spec.Mode), Agent: name, Namespace: c.Namespace,
				ClusterServer: controller.ClusterServer(c.ResourceProxy.URL, name), Longer: registry.Longer(name),
				Selector: c.Mapping.LabelSelector(),
			}, Hub: decided.UID,
		},
		ClusterProject: a.Status.ClusterProject, Terminating: a.DeletionTimestamp != nil &&
			fleet.Cascades(&a), ProjectRoles: fleet.MirrorsProjectRoles(&a), Adopt: adoptable(a),
		SharesUnscoped: c.Repositories.ShareUnscoped, DefaultProject: defaultProject(decided.DefaultProject),
	}
	if registry.ByDestination() && rules.Mode == stream.Managed {
		rules.ByDestination, rules.Namespaces = true, c.Mapping.Namespaces
		rules.ChildNamespace = registry.ChildNamespace(name)
		rules.Children = rules.ChildNamespace != ""
	} else {
		rules.Pairs, rules.Children = pairsOf(registry, name), fleet.ShowsChildren(&a)
	}
	return rules
}

// defaultProject is what the rules know of what a hub has decided; the zero value before
// it has.
func defaultProject(decided hub.DefaultProject) ownership.DefaultProject {
	return map[hub.DefaultProject]ownership.DefaultProject{
		hub.NotShared: ownership.NotShared, hub.Shared: ownership.Shared, hub.NoLongerShared: ownership.NoLongerShared,
	}[decided]
}

// adoptable names what mirrors of an agent may adopt on the hub.
func adoptable(a v1alpha1.Agent) []string {
	var patterns []string
	for _, p := range a.Spec.Adopt {
		patterns = append(patterns, string(p))
	}
	return patterns
}

// pairsOf are the namespaces that an agent has on the hub.
func pairsOf(registry *fleet.Registry, name identity.AgentName) []mapping.Pair {
	pairs := []mapping.Pair{}
	for _, mapped := range registry.Mapped(name) {
		pairs = append(pairs, mapping.Pair{Spoke: mapped.Spoke, Hub: mapped.Hub})
	}
	return pairs
}
