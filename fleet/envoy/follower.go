// Package envoy keeps the Envoy beside the principal equal to the registry and the token keys.
package envoy

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/mesh/xds"
	"github.com/argomesh/argomesh/stream/streampb"
)

// Config holds what a Follower needs. Fields without a stated default are required.
type Config struct {
	// Fixed is what of the state does not change: addresses and limits. Its Self, and the
	// Agents and Tokens of its ResourceProxy, are the Follower's.
	Fixed mesh.Snapshot
	// Self waits until our own SPIFFE ID is known.
	Self     func(context.Context) (spiffeid.ID, error)
	Registry *fleet.Registry
	// Tokens are those for the resource proxy. It is required with one.
	Tokens Tokens
	Server *xds.Server
	Log    zerolog.Logger
}

// Follower has an xDS server serve the state of the moment.
type Follower struct{ cfg Config }

// New starts nothing.
func New(cfg Config) *Follower { return &Follower{cfg: cfg} }

// Run serves Envoy on l until ctx is done, and closes it.
func (f *Follower) Run(ctx context.Context, l net.Listener) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.cfg.Server.Run(ctx, l) })
	g.Go(func() error { return f.follow(ctx) })
	return g.Wait()
}

// follow sets the whole state after each change of a part of it. Nothing is set before
// all parts are known: Envoy would take agents away that are only not read yet.
func (f *Follower) follow(ctx context.Context) error {
	self, err := f.cfg.Self(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // stopped while it waited
		}
		return fmt.Errorf("envoy: our own SPIFFE ID: %w", err)
	}
	for {
		registryChanged := f.cfg.Registry.Changed()
		var (
			check       mesh.Tokens
			keysChanged <-chan struct{}
			unknown     = f.cfg.Registry.Ready()
		)
		if f.cfg.Fixed.ResourceProxy != nil {
			var err error
			check, keysChanged, err = f.cfg.Tokens()
			unknown = errors.Join(unknown, err)
		}
		if unknown == nil {
			if err := f.cfg.Server.Set(f.snapshot(self, check)); err != nil {
				f.cfg.Log.Error().Err(err).Msg("cannot serve the new state; Envoy keeps what it has")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-registryChanged:
		case <-keysChanged:
		}
	}
}

func (f *Follower) snapshot(self spiffeid.ID, check mesh.Tokens) mesh.Snapshot {
	snapshot := f.cfg.Fixed
	snapshot.Self = self
	if snapshot.ResourceProxy != nil {
		proxy := *snapshot.ResourceProxy
		proxy.Tokens, proxy.Agents = check, routed(f.cfg.Registry)
		snapshot.ResourceProxy = &proxy
	}
	return snapshot
}

// routed returns the agents to which requests are let through: a suspended one is
// not there.
func routed(registry *fleet.Registry) map[identity.AgentName]mesh.Agent {
	agents := map[identity.AgentName]mesh.Agent{}
	for name, agent := range registry.Agents() {
		if !agent.Spec.Suspended {
			agents[name] = mesh.Agent{}
		}
	}
	return agents
}

// StreamServices are the names of the gRPC services for agents.
func StreamServices() []string {
	var names []string
	for _, file := range []protoreflect.FileDescriptor{streampb.File_stream_proto, streampb.File_tunnel_proto} {
		for i := range file.Services().Len() {
			names = append(names, string(file.Services().Get(i).FullName()))
		}
	}
	return names
}
