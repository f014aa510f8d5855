package stream

import (
	"github.com/argomesh/argomesh/identity"
)

// Agent is what the registry knows of an admitted peer.
type Agent struct {
	Name identity.AgentName
	Mode Mode
	// Children says that the hub shows the spoke's own Applications. The agent
	// learns it in its welcome, so a change takes effect with the next connection.
	Children bool
}
