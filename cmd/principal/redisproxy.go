package main

import (
	"context"
	"errors"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/cmd/internal/argoredis"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/listen"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/fleet/live"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/redis"
	"github.com/argomesh/argomesh/stream/quota"
)

// lastPrefix begins the keys under which last values are kept in the hub's Redis.
const lastPrefix = "argomesh|last|"

// redisConfig holds what the redis proxy is made of.
type redisConfig struct {
	cfg     principalconfig.RedisProxy
	redis   config.Redis
	owners  *live.Resolver
	dial    func(context.Context, identity.AgentName) (net.Conn, error)
	found   func(agent identity.AgentName, mismatch string)
	quota   *quota.Quota
	objects *live.LastObjects // gets the proxy
	// unopened is what is known of Applications that no one may have opened.
	unopened live.Unopened
	metrics  prometheus.Registerer
	log      zerolog.Logger
}

// newRedisProxy opens its socket and starts nothing. run serves until its context is
// done.
func newRedisProxy(ctx context.Context, c redisConfig) (run func(context.Context) error, err error) {
	if c.redis.Address == "" {
		return nil, config.Invalid("redis_proxy.listen",
			"is set, and redis.address is not: give the address of the hub's own Redis")
	}
	hub := redis.HubConfig{
		DialRedis: func(ctx context.Context) (net.Conn, error) { return argoredis.Dial(ctx, c.redis) },
		DialSpoke: c.dial, Owners: c.owners, FormatChanged: c.found, Away: c.owners.Registry.AwaySince,
		Metrics: c.metrics, Log: c.log,
		MaxConnections: c.cfg.MaxConnections, MaxSubscriptions: c.cfg.MaxSubscriptions, MaxAgentCalls: c.cfg.MaxAgentCalls,
		MaxKeptBytes: c.cfg.LastKnownMax, Quota: c.quota, Format: keyFormat(c.redis),
	}
	var client *argoredis.Client
	if c.cfg.LastKnownBytes > 0 {
		client = argoredis.Open(c.redis)
		hub.LastKnown = client.Cache(lastPrefix, c.cfg.LastKnownBytes, redis.KeptFor)
	}
	closeAll := func() error {
		if client == nil {
			return nil
		}
		return client.Close()
	}
	proxy, err := redis.NewHub(hub)
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	var parts []func(context.Context) error
	if hub.LastKnown != nil && c.cfg.LastKnownUnopened {
		read, err := c.unopened.Reader(proxy, c.metrics, c.log)
		if err != nil {
			return nil, errors.Join(err, closeAll())
		}
		parts = append(parts, read)
	}
	l, err := listen.Open(ctx, "redis_proxy.listen", c.cfg.Listen)
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	c.objects.Proxy.Store(proxy)
	parts = append(parts, func(ctx context.Context) error { return proxy.Run(ctx, l) })
	return func(ctx context.Context) error {
		c.owners.Await(ctx, live.RebuildTime)
		return errors.Join(together(ctx, parts...), closeAll())
	}, nil
}

// keyFormat is the one in which an Argo CD keeps its cache, as its keys have it.
func keyFormat(c config.Redis) string {
	if c.Compression == config.CompressionNone {
		return c.CacheVersion
	}
	return c.CacheVersion + ".gz"
}
