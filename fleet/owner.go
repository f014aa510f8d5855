package fleet

import (
	"fmt"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
)

// OwnerOf returns the agent to which the Applications of a hub namespace belong; owned
// is false for a namespace that is no agent's, as those of managed agents are not by
// destination: see Owner. What it points to is shared: callers do
// not change it. The error is about an agent's namespace, or one of which that is not
// known yet: it wraps identity.ErrDenied when the agent is suspended or being deleted.
func (r *Registry) OwnerOf(namespace string) (agent v1alpha1.Agent, owned bool, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !r.known {
		return v1alpha1.Agent{}, false, fmt.Errorf("the Agents of the hub are not known yet")
	}
	name, owned := r.namespaces[namespace]
	a := r.agents[name]
	switch {
	case !owned || !r.Mapping.byNamespace(a):
		return v1alpha1.Agent{}, false, nil
	case a.DeletionTimestamp != nil:
		return v1alpha1.Agent{}, true, fmt.Errorf("Agent %s is being deleted: %w", name, identity.ErrDenied)
	case a.Spec.Suspended:
		return v1alpha1.Agent{}, true, fmt.Errorf("Agent %s is suspended: %w", name, identity.ErrDenied)
	}
	return a, true, nil
}
