package fleet

import (
	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
)

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

// ChildNamespaceTaken returns whose the namespace is where an agent's child applications
// would be shown: the zero name for the hub's Argo CD. It is false when no one else has it,
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

// Owner is OwnerOf for one Application.
func (r *Registry) Owner(app Placement) (identity.AgentName, bool) { return r.OwnerOf()(app) }

// OwnerOf decides whose an Application on the hub is, by the Agents of this moment: one
// agent's or, if there is none, no one's. It says nothing about whether the agent may
// have it now: one that is suspended or being deleted owns what it owned.
//
// What is in a namespace of an autonomous agent, and of any agent unless the mapping is
// by destination, is that agent's whatever its destination. By destination the mirror of a
// child in the namespace of its agent's name is that agent's; else the name of
// the cluster counts if there is one, and else its server. If an Application sets both,
// which Argo CD rejects, the agent in the name owns it, so that the error is reported
// there; so does an agent that the server names in its query, which no cluster has.
func (r *Registry) OwnerOf() func(Placement) (identity.AgentName, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	// Set replaces these maps, and no one changes them.
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
