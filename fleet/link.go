package fleet

import "github.com/argomesh/argomesh/api/v1alpha1"

// ClaimLink returns what status.link of an Agent is to say once want has the agent's
// link. have is what it says, nil for nothing; the Epoch of want has no meaning. It
// returns have itself when want has the link already, and nil when a newer connection of
// the same process of the agent has it: want is about to end.
func ClaimLink(have *v1alpha1.AgentLink, want v1alpha1.AgentLink) *v1alpha1.AgentLink {
	want.Epoch = 1
	if have == nil {
		return &want
	}
	want.Epoch = have.Epoch
	switch {
	case *have == want:
		return have
	case have.Process != "" && have.Process == want.Process && have.Turn > want.Turn:
		return nil
	}
	want.Epoch++
	return &want
}
