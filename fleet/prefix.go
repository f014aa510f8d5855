package fleet

import (
	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
)

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

// leaving reports whether agent is being deleted and nothing more is to pass
// between it and the hub.
func leaving(agent *v1alpha1.Agent) bool {
	return agent.DeletionTimestamp != nil && !Cascades(agent)
}
