package fleet

import (
	"fmt"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
)

// Reach returns a registered agent that the hub may reach now: one that is neither
// suspended nor, in whatever way, being deleted. What it points to is shared: callers
// do not change it. The error wraps identity.ErrDenied when there is none, and says
// why: for our log, not for a caller. Before the first Set it is another, since
// nothing is known yet.
func (r *Registry) Reach(name identity.AgentName) (v1alpha1.Agent, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !r.known {
		return v1alpha1.Agent{}, fmt.Errorf("the Agents of the hub are not known yet")
	}
	a, found := r.agents[name]
	switch {
	case !found:
		return v1alpha1.Agent{}, fmt.Errorf("no Agent %s is registered: %w", name, identity.ErrDenied)
	case a.DeletionTimestamp != nil:
		return v1alpha1.Agent{}, fmt.Errorf("Agent %s is being deleted: %w", name, identity.ErrDenied)
	case a.Spec.Suspended:
		return v1alpha1.Agent{}, fmt.Errorf("Agent %s is suspended: %w", name, identity.ErrDenied)
	}
	return a, nil
}
