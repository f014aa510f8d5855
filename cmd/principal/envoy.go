package main

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"slices"

	"github.com/go-jose/go-jose/v4"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/argomesh/argomesh/cmd/internal/listen"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/mesh/xds"
	"github.com/argomesh/argomesh/proxies/token"
	"github.com/argomesh/argomesh/stream/streampb"
)

// tokens returns what checks the tokens for the resource proxy, and a channel that is
// closed when that changes. Before it is known there is an error, and Envoy keeps what
// it has.
type tokens func() (check mesh.Tokens, changed <-chan struct{}, err error)

// publishedTokens are those of keys. Of a Secret that cannot be used there may be none:
// then no token is good, and Envoy serves what asks for none.
func publishedTokens(keys *token.Keys) tokens {
	return func() (mesh.Tokens, <-chan struct{}, error) {
		changed := keys.Changed() // before the look, which may only be newer
		published := keys.Published()
		if published.Issuer == "" || len(published.KeyIDs) == 0 && !errors.Is(keys.Ready(), token.ErrUnusable) {
			return mesh.Tokens{}, changed, errors.New("there is no token key yet")
		}
		public, err := publicKeys(published.Keys)
		return mesh.Tokens{Issuer: published.Issuer, Audience: token.Audience, Keys: public, Leeway: token.Leeway}, changed, err
	}
}

// acknowledged is token.Config.Acknowledged: whether Envoy has taken a key.
func acknowledged(server *xds.Server) func(keyID string) bool {
	return func(keyID string) bool {
		taken, _ := server.Acknowledged()
		return slices.Contains(taken, keyID)
	}
}

// tellAcknowledged makes keys look again whenever Envoy has taken others, until ctx is
// done.
func tellAcknowledged(ctx context.Context, server *xds.Server, keys *token.Keys) error {
	for {
		_, changed := server.Acknowledged()
		keys.Look()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// frontDoor keeps the Envoy beside the principal equal to the registry and the token
// keys.
type frontDoor struct {
	cfg principalconfig.Envoy
	// gateways says that agents come through gateways that the principal trusts.
	gateways bool
	self     func(context.Context) (spiffeid.ID, error) // waits until it is known
	registry *fleet.Registry
	// tokens and upstream, where the principal takes requests for spokes from Envoy,
	// are zero when there is no resource proxy.
	tokens   tokens
	upstream mesh.Address
	// redis is where the principal takes the hub's Argo CD from Envoy; zero for no redis
	// proxy.
	redis  mesh.Address
	server *xds.Server
	log    zerolog.Logger
}

// svidID returns what waits for the first SVID and tells its SPIFFE ID.
func svidID(source *workload.Source) func(context.Context) (spiffeid.ID, error) {
	return func(ctx context.Context) (spiffeid.ID, error) {
		for {
			if err := source.WaitReady(ctx); err != nil {
				return spiffeid.ID{}, err
			}
			if svid, err := source.GetX509SVID(); err == nil { // else it has expired just now
				return svid.ID, nil
			}
		}
	}
}

// Run serves Envoy until ctx is done, if there is to be one.
func (d *frontDoor) Run(ctx context.Context) error {
	if d.cfg.Listen == "" {
		return nil
	}
	l, err := listen.Open(ctx, "envoy.listen", d.cfg.Listen)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.server.Run(ctx, l) })
	g.Go(func() error { return d.follow(ctx) })
	return g.Wait()
}

// follow sets the whole state after each change of a part of it. Nothing is set before
// all parts are known: Envoy would take agents away that are only not read yet.
func (d *frontDoor) follow(ctx context.Context) error {
	self, err := d.self(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // stopped while it waited
		}
		return fmt.Errorf("envoy: our own SPIFFE ID: %w", err)
	}
	for {
		registryChanged := d.registry.Changed()
		var (
			check       mesh.Tokens
			keysChanged <-chan struct{}
			unknown     = d.registry.Ready()
		)
		if d.tokens != nil {
			var err error
			check, keysChanged, err = d.tokens()
			unknown = errors.Join(unknown, err)
		}
		if unknown == nil {
			if err := d.set(self, check); err != nil {
				d.log.Error().Err(err).Msg("envoy keeps what it has, since the new state cannot be served")
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

func (d *frontDoor) set(self spiffeid.ID, check mesh.Tokens) error {
	snapshot := mesh.Snapshot{Self: self}
	if d.tokens != nil {
		snapshot.ResourceProxy = &mesh.ResourceProxy{
			Listen: d.cfg.ResourceProxy, Principal: d.upstream, Tokens: check,
			Agents:         routed(d.registry),
			MaxConnections: d.cfg.MaxConnections, MaxRequests: d.cfg.MaxRequests,
		}
	}
	if !d.redis.IsZero() {
		snapshot.Redis = &mesh.Redis{
			Listen: d.cfg.Redis, Principal: d.redis, TLS: mesh.RedisTLS(d.cfg.RedisTLS), CertificateFile: d.cfg.RedisCert, KeyFile: d.cfg.RedisKey,
		}
	}
	if !d.cfg.Stream.IsZero() {
		snapshot.Stream = &mesh.Stream{Listen: d.cfg.Stream, Principal: d.cfg.StreamUpstream, Services: streamServices(), BehindGateway: d.gateways}
	}
	return d.server.Set(snapshot)
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

// streamServices are the gRPC services for agents.
func streamServices() []string {
	var names []string
	for _, file := range []protoreflect.FileDescriptor{streampb.File_stream_proto, streampb.File_tunnel_proto} {
		for i := range file.Services().Len() {
			names = append(names, string(file.Services().Get(i).FullName()))
		}
	}
	return names
}

// publicKeys returns the keys as the mesh knows them. A private one stays out of every
// message: it is an error, and so is one that is not of an elliptic curve.
func publicKeys(set jose.JSONWebKeySet) ([]mesh.Key, error) {
	keys := make([]mesh.Key, 0, len(set.Keys))
	for _, k := range set.Keys {
		public, ok := k.Key.(*ecdsa.PublicKey)
		if !ok {
			return nil, fmt.Errorf("token key %q is not a public key of an elliptic curve", k.KeyID)
		}
		keys = append(keys, mesh.Key{ID: k.KeyID, Public: public})
	}
	return keys, nil
}
