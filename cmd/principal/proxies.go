package main

import (
	"context"
	"fmt"

	"github.com/argomesh/argomesh/cmd/internal/admin"
	"github.com/argomesh/argomesh/fleet/division"
	"github.com/argomesh/argomesh/fleet/envoy"
	"github.com/argomesh/argomesh/fleet/live"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/mesh/xds"
	"github.com/argomesh/argomesh/stream"
)

// proxies is how those on the hub reach spokes: Envoy, the proxies behind it, and the
// credentials for them. Each part that is not configured is not there.
type proxies struct {
	credentials liveCredentials
	parts       []func(context.Context) error
}

// newProxies opens the sockets of the proxies, and starts nothing.
func newProxies(ctx context.Context, c *hubCore) (*proxies, error) {
	cfg, log, registry := c.cfg, c.base.Log, c.base.Metrics
	server, err := xds.New(xds.Config{NodeID: cfg.Envoy.NodeID, Metrics: registry, Log: log})
	if err != nil {
		return nil, err
	}
	var taken func(keyID string) bool
	if cfg.Envoy.Listen != "" {
		taken = envoy.Acknowledged(server)
	}
	credentials, err := newLiveCredentials(cfg, c.base, c.source, c.hub, taken)
	if err != nil {
		return nil, err
	}
	var upstream, redis mesh.Address
	f := &proxies{credentials: credentials, parts: []func(context.Context) error{credentials.run}}
	if keys := credentials.keys; keys != nil {
		f.parts = append(f.parts, func(ctx context.Context) error { return envoy.TellAcknowledged(ctx, server, keys) })
	}
	whose := &live.Resolver{Registry: c.agents, Store: c.store, Namespace: cfg.Namespace, Rules: c.links.RulesOf}
	objects, known := &live.LastObjects{Resolver: whose}, &live.Kinds{}
	if cfg.ResourceProxy.Listen != "" {
		live, err := newLiveAccess(ctx, liveConfig{
			cfg: cfg.ResourceProxy, redis: cfg.Redis, name: replica(), build: c.build, base: c.base, agents: c.agents,
			tokens: live.Bearers{Keys: credentials.keys}, dial: c.dials(stream.Kubernetes), objects: objects,
		})
		if err != nil {
			return nil, err
		}
		if upstream, err = mesh.ParseAddress(cfg.ResourceProxy.Listen); err != nil {
			return nil, fmt.Errorf("resource_proxy.listen: %w", err)
		}
		f.parts = append(f.parts, live.Run)
		known.Hub = live.hub
	}
	if cfg.RedisProxy.Listen != "" {
		serve, err := newRedisProxy(ctx, redisConfig{
			cfg: cfg.RedisProxy, redis: cfg.Redis, quota: c.quota, metrics: registry, log: log,
			owners: whose, objects: objects, unopened: live.Unopened{
				Hub: c.hub, Store: c.store, Registry: c.agents, Sessions: c.sessions,
				Division: func() *division.Division { return c.owners }, Resolver: whose, Kinds: known,
			}, found: c.sessions.Found, dial: c.dials(stream.Redis),
		})
		if err != nil {
			return nil, err
		}
		if redis, err = mesh.ParseAddress(cfg.RedisProxy.Listen); err != nil {
			return nil, fmt.Errorf("redis_proxy.listen: %w", err)
		}
		f.parts = append(f.parts, serve)
	}
	follower := envoy.New(envoy.Config{
		Fixed: served(cfg, upstream, redis), Self: c.source.WaitID, Registry: c.agents,
		Tokens: envoy.Published(credentials.keys), Server: server, Log: log,
	})
	f.parts = append(f.parts, serveEnvoy(cfg.Envoy.Listen, follower))
	return f, nil
}

// Run serves until ctx is done.
func (f *proxies) Run(ctx context.Context) error { return together(ctx, f.parts...) }

// checks never makes the principal unready: agents are served whatever becomes of the
// keys.
func (f *proxies) checks() []admin.Check {
	return []admin.Check{{Name: "token keys", Ready: always, Degraded: f.credentials.unusable}}
}

// always is the readiness of what others do not wait for.
func always() error { return nil }
