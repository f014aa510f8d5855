// Package fleet is the registry of agents: which agent a SPIFFE ID, and an Application
// of the hub, belongs to, and whether it may connect. It is built from the Agent objects of the hub;
// anyone who watches those calls Set. fleet/controller keeps what the hub derives
// from the Agents.
//
//	var r fleet.Registry
//	r.Set(agents)                 // the whole state, each time
//	agent, err := r.Admit(peer)   // an authenticated SPIFFE ID
package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/notify"
	"github.com/argomesh/argomesh/stream"
)

// Registry knows the agents of one hub. The zero value knows none and admits
// no one. Its methods may be called concurrently.
type Registry struct {
	mu sync.RWMutex // guards what follows
	// Mapping says whose an Application of the hub is. It is set when the Registry is made,
	// or by Map, before Set.
	Mapping    Mapping
	known      bool
	agents     map[identity.AgentName]v1alpha1.Agent // changed by Note
	registered map[identity.AgentName]v1alpha1.Agent // as Set had them: replaced, and never changed
	owners     map[spiffeid.ID]identity.AgentName
	last       map[string]identity.AgentName // by the SPIFFE ID with which one last connected
	namespaces map[string]identity.AgentName // of the hub, by Namespaces
	longer     map[identity.AgentName][]identity.AgentName
	divisions  uint64           // see Divisions
	changed    notify.Broadcast // of Set
}

// Map says whose an Application of the hub is. It is called once, before Set: until then
// no agent owns anything.
func (r *Registry) Map(m Mapping) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Mapping = m
}

// ByDestination reports whether the destination of an Application, and not its namespace, says
// which managed agent owns it. It is known when the registry is Ready.
func (r *Registry) ByDestination() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.Mapping.ByDestination
}

// Set replaces all that the registry knows.
func (r *Registry) Set(agents []v1alpha1.Agent) {
	byName := make(map[identity.AgentName]v1alpha1.Agent, len(agents))
	last := map[string]identity.AgentName{}
	for _, a := range agents {
		if name, err := identity.ParseAgentName(a.Name); err == nil {
			byName[name] = a
			last[a.Status.SPIFFEID] = name
		}
	}
	delete(last, "")
	owners, _ := OwnersOfIDs(agents)
	r.mu.Lock()
	defer r.mu.Unlock()
	namespaces, _ := Namespaces(agents, r.Mapping.Namespace)
	if !maps.Equal(namespaces, r.namespaces) || !maps.EqualFunc(byName, r.agents, sameMode) {
		r.divisions++
	}
	r.known, r.agents, r.registered = true, byName, maps.Clone(byName)
	r.owners, r.last, r.namespaces, r.longer = owners, last, namespaces, longerOf(byName)
	r.changed.Notify()
}

// UpdateStatus takes a newer state of one agent whose registration is what it was: status and
// annotations that concern no one but its own link. Those who wait for Changed sleep
// on, since with many agents someone's status changes all the time. An agent that is
// not known stays so.
func (r *Registry) UpdateStatus(agent v1alpha1.Agent) {
	name, err := identity.ParseAgentName(agent.Name)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.agents[name]
	if !known {
		return
	}
	r.agents[name] = agent
	if before.Status.SPIFFEID != agent.Status.SPIFFEID {
		delete(r.last, before.Status.SPIFFEID)
		r.last[agent.Status.SPIFFEID] = name
		delete(r.last, "")
	}
}

func sameMode(a, b v1alpha1.Agent) bool {
	return a.Spec.Mode == b.Spec.Mode && ShowsChildren(&a) == ShowsChildren(&b)
}

// Divisions counts how often what OwnerOf decides by has become another: as long as it
// stays the same, so does whose each Application is.
func (r *Registry) Divisions() uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.divisions
}

// Ready returns an error until Set was called: before, no one is admitted.
func (r *Registry) Ready() error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !r.known {
		return fmt.Errorf("the Agents of the hub are not known yet: the hub's API server has not answered")
	}
	return nil
}

// Changed returns a channel that is closed at the next Set. Note does not close it.
func (r *Registry) Changed() <-chan struct{} {
	return r.changed.Next()
}

// ModeOf is the mode of a link to an agent of mode m.
func ModeOf(m v1alpha1.AgentMode) stream.Mode {
	if m == v1alpha1.ModeAutonomous {
		return stream.Autonomous
	}
	return stream.Managed
}

// Cascades reports whether deleting agent takes its Applications along, with their
// workloads: only where the hub owns them.
func Cascades(agent *v1alpha1.Agent) bool {
	return agent.Spec.DeletionPolicy == v1alpha1.DeletionCascade && agent.Spec.Mode == v1alpha1.ModeManaged
}

// CascadeHold is how many of agent's Applications may be asked to go with their
// workloads before they wait for a person; zero for any number.
func CascadeHold(agent *v1alpha1.Agent) int {
	if agent.Spec.CascadeHold == nil {
		return int(v1alpha1.DefaultCascadeHold)
	}
	return int(*agent.Spec.CascadeHold)
}

// MirrorsProjectRoles reports whether the mirrors of agent's AppProjects have their
// roles.
func MirrorsProjectRoles(agent *v1alpha1.Agent) bool {
	return agent.Spec.ProjectRoles == v1alpha1.ProjectRolesMirror && agent.Spec.Mode == v1alpha1.ModeAutonomous
}

// Admit returns the agent to which the peer's SPIFFE ID belongs. One whose
// deletion cascades is admitted until its Agent is gone, since its spoke has to
// carry the deletion out; that nothing else passes is for the caller to see to.
// The error wraps identity.ErrDenied and says why: for our log, not for the peer.
func (r *Registry) Admit(peer identity.Peer) (stream.Agent, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	name, ok := r.owners[peer.ID]
	if !ok {
		return stream.Agent{}, fmt.Errorf("%s is not in spec.identity.spiffeIDs of any Agent: %w", peer.ID,
			identity.ErrDenied)
	}
	a := r.agents[name]
	switch {
	case leaving(&a):
		return stream.Agent{}, fmt.Errorf("Agent %s is being deleted: %w", name, identity.ErrDenied)
	case a.Spec.Suspended:
		return stream.Agent{}, fmt.Errorf("Agent %s is suspended: %w", name, identity.ErrSuspended)
	}
	return stream.Agent{Name: name, Mode: ModeOf(a.Spec.Mode), Children: ShowsChildren(&a) &&
		(!r.Mapping.ByDestination || r.childNamespace(name) != "")}, nil
}

// Owns reports whether a SPIFFE ID belongs to an Agent, which may be suspended or on its
// way out.
func (r *Registry) Owns(id spiffeid.ID) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	_, found := r.owners[id]
	return found
}

// TrustDomains are those of the SPIFFE IDs that belong to an Agent, in no order.
func (r *Registry) TrustDomains() []spiffeid.TrustDomain {
	r.mu.RLock()
	defer r.mu.RUnlock()
	domains := map[spiffeid.TrustDomain]struct{}{}
	for id := range r.owners {
		domains[id.TrustDomain()] = struct{}{}
	}
	return slices.Collect(maps.Keys(domains))
}

// Intended returns the agent for which a SPIFFE ID that belongs to none is probably meant: the
// one that last connected by it, or whose name it has in the form that agentctl proposes, and a
// trust domain of its own IDs. Of another trust domain people are not told to take an ID, whose
// SPIRE may sign any name. It is for what people are told, and admits no one.
func (r *Registry) Intended(id spiffeid.ID) (name identity.AgentName, found bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if name, found = r.last[id.String()]; found {
		return name, true
	}
	if name, found = identity.AgentNameIn(id); !found {
		return name, false
	}
	return name, slices.ContainsFunc(r.agents[name].Spec.Identity.SPIFFEIDs, func(text string) bool {
		own, err := identity.ParseID(text)
		return err == nil && own.TrustDomain() == id.TrustDomain()
	})
}

// Agent returns one of Agents.
func (r *Registry) Agent(name identity.AgentName) (agent v1alpha1.Agent, known bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	agent, known = r.agents[name]
	return agent, known && !leaving(&agent)
}

// Agents returns the agents that have something to do with the hub, in no order:
// those that are not being deleted, suspended ones included, and those whose
// deletion cascades. They are shared: callers do not change them.
func (r *Registry) Agents() map[identity.AgentName]v1alpha1.Agent {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make(map[identity.AgentName]v1alpha1.Agent, len(r.agents))
	for name, a := range r.agents {
		if !leaving(&a) {
			out[name] = a
		}
	}
	return out
}

// longerOf is what Longer tells of each agent.
func longerOf(agents map[identity.AgentName]v1alpha1.Agent) map[identity.AgentName][]identity.AgentName {
	longer := map[identity.AgentName][]identity.AgentName{}
	for name := range agents {
		if !isAutonomous(agents, name) {
			continue
		}
		for _, s := range shorter(name.String(), func(s identity.AgentName) bool { return isAutonomous(agents, s) }) {
			longer[s] = append(longer[s], name)
		}
	}
	for _, names := range longer {
		slices.SortFunc(names, func(a, b identity.AgentName) int { return strings.Compare(a.String(), b.String()) })
	}
	return longer
}

// childNamespace is ChildNamespace with mu locked.
func (r *Registry) childNamespace(name identity.AgentName) string {
	agent, found := r.registered[name]
	if !found || !r.Mapping.holdsChildren(agent, r.namespaces, r.registered) {
		return ""
	}
	return agent.Name
}
