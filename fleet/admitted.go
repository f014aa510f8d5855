package fleet

import (
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/identity"
)

// Admitted returns the SPIFFE IDs that Admit lets in, by their agents, in no order:
// for what repeats the registry's check elsewhere. An agent that may not connect,
// or whose SPIFFE IDs all belong to others, is not there.
func (r *Registry) Admitted() map[identity.AgentName][]spiffeid.ID {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make(map[identity.AgentName][]spiffeid.ID, len(r.agents))
	for id, name := range r.owners {
		if a := r.agents[name]; !leaving(&a) && !a.Spec.Suspended {
			out[name] = append(out[name], id)
		}
	}
	return out
}
