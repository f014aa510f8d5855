package mapping

import (
	"github.com/argomesh/argomesh/identity"
)

// Placement is what of a hub's Application says whose it is.
type Placement struct {
	Namespace string
	// Name and Server are those of its destination.
	Name, Server string
	// Child is the agent whose child application it shows, as a mirror that was not
	// released; the zero name for every other one.
	Child identity.AgentName
}

// Owner says whose an Application is; the zero name for no one's. It is pure, and may
// be called concurrently.
type Owner func(Placement) identity.AgentName
