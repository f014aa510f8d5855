package fleet

import (
	"cmp"
	"slices"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
)

// Conflict is a SPIFFE ID that an Agent names and that stays with an older one.
type Conflict struct {
	ID spiffeid.ID
	// Owner is the older agent.
	Owner identity.AgentName
}

// OwnersOfIDs says which agent each SPIFFE ID named by agents belongs to: the oldest
// Agent that names it, the first by name among those of the same second. An
// agent that names an ID it does not get has an entry in conflicts, in the order
// of its spec; an agent without conflicts has none.
//
// A suspended or deleting Agent still owns its IDs, so that no one becomes
// another agent by it; whether it may connect is for the caller to say. An Agent
// or ID that does not parse owns nothing: the API server accepts none such. The
// Agents are those of one namespace, in any order. The result for an ID depends
// only on the Agents that name it.
func OwnersOfIDs(agents []v1alpha1.Agent) (byID map[spiffeid.ID]identity.AgentName,
	conflicts map[identity.AgentName][]Conflict) {
	byID = make(map[spiffeid.ID]identity.AgentName, len(agents))
	conflicts = make(map[identity.AgentName][]Conflict)
	for _, agent := range byAge(agents) {
		name, err := identity.ParseAgentName(agent.Name)
		if err != nil {
			continue
		}
		for _, text := range agent.Spec.Identity.SPIFFEIDs {
			id, err := identity.ParseID(text)
			if err != nil {
				continue
			}
			owner, taken := byID[id]
			switch {
			case !taken:
				byID[id] = name
			case owner != name:
				conflicts[name] = append(conflicts[name], Conflict{ID: id, Owner: owner})
			}
		}
	}
	return byID, conflicts
}

// byAge returns agents oldest first, without copying them.
func byAge(agents []v1alpha1.Agent) []*v1alpha1.Agent {
	sorted := make([]*v1alpha1.Agent, len(agents))
	for i := range agents {
		sorted[i] = &agents[i]
	}
	slices.SortFunc(sorted, func(a, b *v1alpha1.Agent) int {
		return cmp.Or(
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return sorted
}
