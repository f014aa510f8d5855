package fleet

import (
	"strings"

	"github.com/argomesh/argomesh/api/v1alpha1"
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
type Placement struct {
	Namespace string
	// Name and Server are those of its destination.
	Name, Server string
	// Child is the agent whose child application it shows, as a mirror that was not
	// released; the zero name for every other one.
	Child identity.AgentName
}

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

// Namespaces says which agent has each hub namespace that agents name, as Owners does
// of SPIFFE IDs: the oldest Agent that names it. Reserved is the namespace of the hub's
// Argo CD, which nobody gets; empty for none.
func Namespaces(agents []v1alpha1.Agent, reserved string) (byNamespace map[string]identity.AgentName, conflicts map[identity.AgentName][]NamespaceConflict) {
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

// Mapped returns the namespaces of an agent that it has on the hub: those that it
// names, less those that others have.
func (r *Registry) Mapped(name identity.AgentName) []v1alpha1.MappedNamespace {
	r.mu.RLock()
	defer r.mu.RUnlock()
	a, found := r.agents[name]
	if !found {
		return nil
	}
	var out []v1alpha1.MappedNamespace
	for _, mapped := range NamespacesOf(&a) {
		if r.namespaces[mapped.Hub] == name {
			out = append(out, mapped)
		}
	}
	return out
}

// Namespaces returns which agent has each namespace of the hub that has one for itself.
// It is shared: callers do not change it.
func (r *Registry) Namespaces() map[string]identity.AgentName {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !r.Mapping.ByDestination {
		return r.namespaces
	}
	out := map[string]identity.AgentName{}
	for namespace, name := range r.namespaces {
		if r.Mapping.byNamespace(r.agents[name]) {
			out[namespace] = name
		}
	}
	for name := range r.agents {
		if namespace := r.childNamespace(name); namespace != "" {
			out[namespace] = name
		}
	}
	return out
}

// ChildNamespace returns the namespace of the hub where the child applications of a managed
// agent are shown by destination: that of the agent's name. It is empty where they are not
// to be shown, by namespace, and where the namespace is that of the hub's Argo CD or
// another agent's: mirrors of two agents must not meet.
func (r *Registry) ChildNamespace(name identity.AgentName) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.childNamespace(name)
}

// childNamespace is ChildNamespace with mu locked.
func (r *Registry) childNamespace(name identity.AgentName) string {
	agent, found := r.registered[name]
	if !found || !r.Mapping.holdsChildren(agent, r.namespaces, r.registered) {
		return ""
	}
	return agent.Name
}

// ChildNamespaceTaken returns whose the namespace is where an agent's child applications
// would be shown: the zero name for the hub's Argo CD. It is false when nobody else has it,
// or they are not to be shown by destination.
func (r *Registry) ChildNamespaceTaken(name identity.AgentName) (owner identity.AgentName, taken bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	agent, found := r.registered[name]
	if !found || !r.Mapping.ByDestination || !ShowsChildren(&agent) || r.childNamespace(name) != "" {
		return identity.AgentName{}, false
	}
	return r.namespaces[agent.Name], true
}

// holdsChildren reports whether the namespace of an agent's name shows its children by
// destination. What managed agents name in spec.mapping is not read then.
func (m Mapping) holdsChildren(agent v1alpha1.Agent, namespaces map[string]identity.AgentName, agents map[identity.AgentName]v1alpha1.Agent) bool {
	if !m.ByDestination || !ShowsChildren(&agent) || agent.Name == m.Namespace {
		return false
	}
	owner, named := namespaces[agent.Name]
	return !named || !m.byNamespace(agents[owner])
}

// Owner is Owners for one Application.
func (r *Registry) Owner(app Placement) (identity.AgentName, bool) { return r.Owners()(app) }

// Owners decides whose an Application on the hub is, by the Agents of this moment: one
// agent's or, if there is none, nobody's. It says nothing about whether the agent may
// have it now: one that is suspended or being deleted owns what it owned.
//
// What is in a namespace of an autonomous agent, and of any agent unless the mapping is
// by destination, is that agent's whatever its destination. By destination the mirror of a
// child in the namespace of its agent's name is that agent's; else the name of
// the cluster counts if there is one, and else its server. Of an Application that has
// both, which Argo CD does not take, the name says who is to tell; so does a server
// that names an agent in its query, which no cluster has.
func (r *Registry) Owners() func(Placement) (identity.AgentName, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	// Set replaces these maps, and nobody changes them.
	agents, namespaces, m := r.registered, r.namespaces, r.Mapping
	return func(app Placement) (identity.AgentName, bool) {
		name, owned := namespaces[app.Namespace]
		shown, is := agents[app.Child] // which no agent that is not there has
		switch {
		case is && app.Namespace == shown.Name && m.holdsChildren(shown, namespaces, agents):
			return app.Child, true
		case owned && m.byNamespace(agents[name]):
			return name, true
		case !m.ByDestination, app.Namespace != m.Namespace && (m.Admits == nil || !m.Admits(app.Namespace)):
			return identity.AgentName{}, false
		}
		name, ok := m.cluster(app)
		if !ok || agents[name].Spec.Mode != v1alpha1.ModeManaged { // which no agent that is not there has
			return identity.AgentName{}, false
		}
		return name, true
	}
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
