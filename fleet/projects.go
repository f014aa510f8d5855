package fleet

import "github.com/argomesh/argomesh/identity"

// The mirror of an autonomous agent's AppProject has the agent's name, a dash and the
// project's as its name. So edge's project 1-web and edge-1's project web would have the
// same: such a name is that of the agent with the longest name that fits, anyone who was
// there first, so that no spoke can take it from an agent that is registered later.

// Longer returns the autonomous agents whose names begin with that of an autonomous agent
// and a dash, sorted: names of mirrors that begin with theirs are not that agent's.
func (r *Registry) Longer(name identity.AgentName) []identity.AgentName {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.longer[name]
}

// Prefixes returns the autonomous agents whose names begin with another's: as long as they
// are the same, so is whose a mirror is.
func (r *Registry) Prefixes() map[identity.AgentName]bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	prefixes := map[identity.AgentName]bool{}
	for _, names := range r.longer {
		for _, name := range names {
			prefixes[name] = true
		}
	}
	return prefixes
}

// ProjectOwner returns the autonomous agent to which a mirror of that name belongs; the
// zero name when there is none.
func (r *Registry) ProjectOwner(mirror string) identity.AgentName {
	r.mu.RLock()
	defer r.mu.RUnlock()
	owners := shorter(mirror, func(name identity.AgentName) bool { return isAutonomous(r.agents, name) })
	if len(owners) == 0 {
		return identity.AgentName{}
	}
	return owners[len(owners)-1]
}
