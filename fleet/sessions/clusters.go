package sessions

import (
	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/agentwatch"
	"github.com/argomesh/argomesh/fleet/clusterinfo"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// Clusters is clusterinfo.Sessions: the agents of the registry with their
// sessions in this process.
type Clusters struct {
	Sessions *Sessions
	Registry *fleet.Registry
}

// Changed implements clusterinfo.Sessions. A change of the registry alone shows at
// the next look.
func (c Clusters) Changed() <-chan struct{} { return c.Sessions.Changed() }

// Snapshot implements clusterinfo.Sessions.
func (c Clusters) Snapshot() map[identity.AgentName]clusterinfo.Session {
	seen := c.Sessions.clusters()
	out := make(map[identity.AgentName]clusterinfo.Session, len(seen))
	for name, agent := range c.Registry.Agents() {
		s, ok := seen[name]
		if !ok {
			s = lastKnown(agent.Status)
		}
		// As the Agent says it, which keeps what is held while the agent is away.
		shows := agentwatch.ShownBy(agent)
		s.Held, s.HeldReason, s.Parked = shows.Held, string(shows.Reason), shows.Parked
		s.Suspended, s.Refused = agent.Spec.Suspended, shows.Refused
		out[name] = s
	}
	return out
}

// clusters returns what is known of the agents that are, or were, connected to
// this process.
func (s *Sessions) clusters() map[identity.AgentName]clusterinfo.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[identity.AgentName]clusterinfo.Session, len(s.agents))
	for name, a := range s.agents {
		session := clusterinfo.Session{
			Connected: a.info.Connected, Since: a.info.Since, LastSeen: a.info.ObservedAt, Kubernetes: a.info.KubernetesVersion,
			// Until the agent tells, its Applications are those of the link.
			Spoke: stream.SpokeInfo{Applications: a.info.Counts.Applications},
		}
		if a.spoke != nil {
			session.Spoke = *a.spoke
		}
		out[name] = session
	}
	return out
}

// lastKnown is what the status of an Agent still tells after a restart. Where it
// says that the agent is connected, that was to a principal that is gone.
func lastKnown(status v1alpha1.AgentStatus) clusterinfo.Session {
	s := clusterinfo.Session{
		Unseen: true, Kubernetes: status.Versions.Kubernetes,
		Spoke: stream.SpokeInfo{Applications: status.Counts.Applications},
	}
	if status.ObservedAt != nil {
		s.LastSeen = status.ObservedAt.Time
		if status.Since != nil && !status.Connected {
			s.Since = status.Since.Time
		}
	}
	return s
}
