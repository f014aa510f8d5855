package controller

import (
	"time"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
)

// Sessions tells which agents are connected and what they reported. It may be
// called from several goroutines at once.
type Sessions interface {
	// Snapshot returns what is known now. The caller may keep and change the map,
	// but not what its values point to. An agent without an entry is not
	// connected.
	Snapshot() map[identity.AgentName]Session
	// Changed returns a channel that is closed when a Session after this call
	// differs in more than its ObservedAt.
	Changed() <-chan struct{}
}

// Session is what is known of an agent that is, or was, connected. Zero values of
// what the agent reports leave those of an earlier session in its Agent's status.
type Session struct {
	// Connected says whether the agent has a live sync stream.
	Connected bool
	// Replica names the principal that holds the stream.
	Replica string
	// Since is when Connected took its value.
	Since time.Time
	// ObservedAt is when the agent was last heard of, by the hub's clock.
	ObservedAt time.Time
	// AgentVersion and KubernetesVersion are what the agent said in its hello.
	AgentVersion      string
	KubernetesVersion string
	// SVIDExpiry is when the newest SVID the agent proved expires.
	SVIDExpiry time.Time
	// Counts are the numbers of objects of a connected agent. Parked in it is
	// derived from the field Parked here when that is larger.
	Counts v1alpha1.AgentCounts
	// Parked are the objects that cannot be applied, in any order; the status
	// names the v1alpha1.MaxParked oldest.
	Parked []v1alpha1.ParkedObject
}
