package main

import (
	"context"
	"net"
	"time"

	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/server"
)

// serveAgents serves the connections of agents until ctx is done, from when the hub's
// identity is known. It closes the listeners.
func (c *hubCore) serveAgents(ctx context.Context, listeners []net.Listener) error {
	hub, known := c.hub.Wait(ctx)
	if !known {
		return closeAll(listeners) // ctx is done
	}
	srv, err := server.New(server.Config{
		Credentials:  c.source.ServerCredentials(c.base.Log),
		Authenticate: workload.PeerFromContext,
		Registry:     c.agents,
		Withdrawn:    c.source.Withdrawn, Updated: c.source.Updated,
		Serve:    c.links.Serve,
		Opened:   c.sessions.Open,
		Renewed:  c.sessions.Renewed,
		Refused:  c.refused,
		Register: c.tunnels.Register,
		HubUID:   hub.UID, Version: c.build.Version,
		Capabilities:   stream.NewCapabilities(stream.WriteCredentials, stream.GiveUp, stream.SeenDeletes, stream.ShowEvents),
		MaxConnections: c.cfg.Stream.MaxConnections,
		// What its tunnel needs, beside that of a renewal; and the stream's.
		MaxAgentConnections: max(64, 4*c.cfg.Tunnel.MaxAgentStreams/call.MaxStreams),
		Quota:               c.quota,
		Metrics:             c.base.Metrics, Log: c.base.Log,
	})
	if err != nil {
		return err
	}
	return srv.Run(ctx, listeners...)
}

// refused is server.Config.Refused.
func (c *hubCore) refused(r server.Refusal) {
	if r.Agent.IsZero() {
		if c.agents.Owns(r.Peer.ID) {
			return // its Agent says that it is suspended, or deleted
		}
		c.unknown.Record(r.Peer.ID, time.Now())
		r.Agent, _ = c.agents.Intended(r.Peer.ID)
	}
	if agent, known := c.agents.Agent(r.Agent); known {
		c.sessions.Refuse(agent.UID, r)
	}
}
