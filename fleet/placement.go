package fleet

import (
	"strings"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/identity"
)

// Mapping says by what the hub tells whose an Application is. Its zero value says by
// the namespace alone.
type Mapping struct {
	// Namespace is that of the hub's Argo CD, which no agent can have.
	Namespace string
	// ByDestination says that a managed agent has the Applications whose destination
	// is its cluster.
	ByDestination bool
	// Admits says in which namespaces beside Namespace those may be. Nil admits none.
	Admits func(namespace string) bool
	// Server returns the server of an agent's cluster. It is required by destination.
	Server func(identity.AgentName) string
}

// Placement is what of an Application on the hub says whose it is.
type Placement = mapping.Placement

// NamespaceConflict is a hub namespace that an Agent names and does not get.
type NamespaceConflict struct {
	Namespace string
	// Owner is the older agent that has it; zero when it is the namespace of the hub's
	// Argo CD.
	Owner identity.AgentName
}

// NamespacesOf returns the namespaces that an Agent names: those of spec.mapping, or
// the one of its name.
func NamespacesOf(agent *v1alpha1.Agent) []v1alpha1.MappedNamespace {
	if agent.Spec.Mapping == nil || len(agent.Spec.Mapping.Namespaces) == 0 {
		return []v1alpha1.MappedNamespace{{Hub: agent.Name}}
	}
	return agent.Spec.Mapping.Namespaces
}

// Namespaces says which agent has each hub namespace that agents name, as OwnersOfIDs does
// of SPIFFE IDs: the oldest Agent that names it. Reserved is the namespace of the hub's
// Argo CD, which no one gets; empty for none.
func Namespaces(agents []v1alpha1.Agent,
	reserved string) (byNamespace map[string]identity.AgentName, conflicts map[identity.AgentName][]NamespaceConflict) {
	byNamespace = make(map[string]identity.AgentName, len(agents))
	conflicts = make(map[identity.AgentName][]NamespaceConflict)
	for _, agent := range byAge(agents) {
		name, err := identity.ParseAgentName(agent.Name)
		if err != nil {
			continue
		}
		for _, mapped := range NamespacesOf(agent) {
			owner, taken := byNamespace[mapped.Hub]
			switch {
			case mapped.Hub == reserved && reserved != "":
				conflicts[name] = append(conflicts[name], NamespaceConflict{Namespace: mapped.Hub})
			case !taken:
				byNamespace[mapped.Hub] = name
			case owner != name:
				conflicts[name] = append(conflicts[name], NamespaceConflict{Namespace: mapped.Hub, Owner: owner})
			}
		}
	}
	return byNamespace, conflicts
}

// String says it for people.
func (c NamespaceConflict) String() string {
	if c.Owner.IsZero() {
		return "namespace " + c.Namespace + " is that of the hub's Argo CD"
	}
	return "namespace " + c.Namespace + " belongs to the older Agent " + c.Owner.String()
}

// holdsChildren reports whether the namespace of an agent's name shows its children by
// destination. What managed agents name in spec.mapping is not read then.
func (m Mapping) holdsChildren(agent v1alpha1.Agent, namespaces map[string]identity.AgentName,
	agents map[identity.AgentName]v1alpha1.Agent) bool {
	if !m.ByDestination || !ShowsChildren(&agent) || agent.Name == m.Namespace {
		return false
	}
	owner, named := namespaces[agent.Name]
	return !named || !m.byNamespace(agents[owner])
}

// byNamespace reports whether an agent has what is in its namespaces.
func (m Mapping) byNamespace(agent v1alpha1.Agent) bool {
	return !m.ByDestination || agent.Spec.Mode == v1alpha1.ModeAutonomous
}

// cluster returns the name of the agent whose cluster is a destination, whether or not
// there is one.
func (m Mapping) cluster(app Placement) (identity.AgentName, bool) {
	label, server := app.Name, strings.TrimRight(app.Server, "/") // as Argo CD compares them
	if label == "" {
		// What comes from argocd-agent is told how it is mended: see mapping.Alias.
		if name, ok := identity.AgentOfClusterURL(server); ok {
			return name, true
		}
		label = server[strings.LastIndexByte(server, '/')+1:] // it ends with the agent's name
	}
	name, err := identity.ParseAgentName(label)
	return name, err == nil && (app.Name != "" || server == m.Server(name))
}

// ShowsChildren reports whether the hub shows the Applications of agent's spoke
// that it did not put there.
func ShowsChildren(agent *v1alpha1.Agent) bool {
	return agent.Spec.ChildApplications == v1alpha1.ChildApplicationsMirror && agent.Spec.Mode == v1alpha1.ModeManaged
}
