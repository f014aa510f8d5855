package main

import (
	"context"

	"github.com/argomesh/argomesh/cmd/internal/listen"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/fleet/envoy"
	"github.com/argomesh/argomesh/mesh"
)

// served is what Envoy is programmed with that does not change. upstream and redis are where
// the principal takes requests for spokes and the hub's Argo CD from it; zero for none.
func served(cfg principalconfig.Config, upstream, redis mesh.Address) mesh.Snapshot {
	var fixed mesh.Snapshot
	e := cfg.Envoy
	if !upstream.IsZero() {
		fixed.ResourceProxy = &mesh.ResourceProxy{
			Listen: e.ResourceProxy, Principal: upstream, MaxConnections: e.MaxConnections, MaxRequests: e.MaxRequests,
		}
	}
	if !redis.IsZero() {
		fixed.Redis = &mesh.Redis{Listen: e.Redis, Principal: redis, TLS: mesh.RedisTLS(e.RedisTLS),
			CertificateFile: e.RedisCert, KeyFile: e.RedisKey}
	}
	if !e.Stream.IsZero() {
		fixed.Stream = &mesh.Stream{
			Listen: e.Stream, Principal: e.StreamUpstream, Services: envoy.StreamServices(),
			BehindGateway: cfg.Stream.Trusts(e.StreamUpstream),
		}
	}
	return fixed
}

// serveEnvoy runs f where Envoy asks, if there is to be one.
func serveEnvoy(address string, f *envoy.Follower) func(context.Context) error {
	return func(ctx context.Context) error {
		if address == "" {
			return nil
		}
		l, err := listen.Open(ctx, "envoy.listen", address)
		if err != nil {
			return err
		}
		return f.Run(ctx, l)
	}
}
