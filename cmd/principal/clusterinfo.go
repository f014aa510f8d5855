package main

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/internal/argoredis"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/clusterinfo"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// clusterInfoWriter returns what shows the agents as clusters in the hub's Redis
// until its context is done. Without an address of Redis it says so, and does
// nothing.
func clusterInfoWriter(cfg principalconfig.Config, from clusterSessions, registry prometheus.Registerer, log zerolog.Logger) (run func(context.Context) error, err error) {
	if cfg.Redis.Address == "" {
		log.Info().Msg("redis.address is not set, so the hub's argo cd does not show whether agents are connected")
		return func(context.Context) error { return nil }, nil
	}
	redis := argoredis.Open(cfg.Redis)
	writer, err := clusterinfo.NewWriter(clusterinfo.WriterConfig{
		Store:    redis,
		Sessions: from,
		Server: func(name identity.AgentName) string {
			return controller.ClusterServer(cfg.ResourceProxy.URL, name)
		},
		Format:  clusterinfo.Format{Version: cfg.Redis.CacheVersion, Plain: cfg.Redis.Compression == config.CompressionNone},
		Metrics: registry, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("redis of the hub: %w", err)
	}
	return writer.Run, nil
}

// clusterSessions is clusterinfo.Sessions: the agents of the registry with their
// sessions in this process.
type clusterSessions struct {
	sessions *sessions
	registry *fleet.Registry
}

// Changed implements clusterinfo.Sessions. A change of the registry alone shows at
// the next look.
func (c clusterSessions) Changed() <-chan struct{} { return c.sessions.Changed() }

// Snapshot implements clusterinfo.Sessions.
func (c clusterSessions) Snapshot() map[identity.AgentName]clusterinfo.Session {
	seen := c.sessions.clusters()
	out := make(map[identity.AgentName]clusterinfo.Session, len(seen))
	for name, agent := range c.registry.Agents() {
		s, ok := seen[name]
		if !ok {
			s = lastKnown(agent.Status)
		}
		// As the Agent says it, which keeps what is held while the agent is away.
		shows := shownBy(agent)
		s.Held, s.HeldReason, s.Parked = shows.held, string(shows.reason), shows.parked
		out[name] = s
	}
	return out
}

// clusters returns what is known of the agents that are, or were, connected to
// this process.
func (s *sessions) clusters() map[identity.AgentName]clusterinfo.Session {
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
