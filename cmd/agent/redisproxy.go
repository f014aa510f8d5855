package main

import (
	"context"
	"fmt"
	"net"

	redis "github.com/argomesh/argomesh/proxies/redis/spoke"

	"github.com/argomesh/argomesh/proxies/redis/appkey"

	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/cmd/internal/agentconfig"
	"github.com/argomesh/argomesh/cmd/internal/argoredis"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/start"
	"github.com/argomesh/argomesh/stream/tunnel"
)

// newRedisProxy returns what serves connections of the hub to this spoke's Redis; nil
// when that is off, and the hub learns that this spoke has none.
func newRedisProxy(cfg agentconfig.Config, base *start.Base) (serve tunnel.Handler, err error) {
	if !cfg.RedisProxy.Enabled {
		return nil, nil //nolint:nilnil // documented
	}
	if cfg.Redis.Address == "" {
		return nil, config.Invalid("redis_proxy.enabled",
			"is true, and redis.address is not set: give the address of this spoke's Redis")
	}
	spoke, err := redis.New(redis.Config{
		Dial: func(ctx context.Context) (net.Conn, error) { return argoredis.Dial(ctx, cfg.Redis) },
		Credentials: func(ctx context.Context) (username, password string, err error) {
			return argoredis.Credentials(ctx, cfg.Redis)
		},
		Database: cfg.Redis.Database, Version: cfg.Redis.CacheVersion, Plain: cfg.Redis.Compression == config.CompressionNone,
		// Those of the link.
		Allow: func(i appkey.Instance) bool {
			return i.Namespace == "" || i.Namespace != cfg.Namespace &&
				mapping.MatchesNamespace(cfg.Mapping.Namespaces, i.Namespace)
		},
		Metrics: base.Metrics, Log: base.Log, MaxConnections: cfg.RedisProxy.MaxConnections,
	})
	if err != nil {
		return nil, fmt.Errorf("redis_proxy: %w", err)
	}
	return spoke.Serve, nil
}
