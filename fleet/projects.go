package fleet

import (
	"slices"
	"strings"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
)

// The mirror of an autonomous agent's AppProject has the agent's name, a dash and the
// project's as its name. So edge's project 1-web and edge-1's project web would have the
// same: such a name is that of the agent with the longest name that fits, whoever was
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

// Prefixed returns the names that an agent would have with whose name and a dash that of
// agent begins, the shortest first; none when its projects have no such names.
func Prefixed(agent *v1alpha1.Agent) (names []string) {
	if agent.Spec.Mode != v1alpha1.ModeAutonomous {
		return nil
	}
	for _, name := range shorter(agent.Name, func(identity.AgentName) bool { return true }) {
		names = append(names, name.String())
	}
	return names
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

// shorter returns the agents with whose name and a dash a longer text begins, the shortest
// first.
func shorter(text string, is func(identity.AgentName) bool) (names []identity.AgentName) {
	for i, c := range text {
		if c != '-' || i == len(text)-1 {
			continue
		}
		if name, err := identity.ParseAgentName(text[:i]); err == nil && is(name) {
			names = append(names, name)
		}
	}
	return names
}

func isAutonomous(agents map[identity.AgentName]v1alpha1.Agent, name identity.AgentName) bool {
	a, known := agents[name]
	return known && a.Spec.Mode == v1alpha1.ModeAutonomous && !leaving(&a)
}
