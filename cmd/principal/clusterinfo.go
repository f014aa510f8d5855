package main

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/cmd/internal/argoredis"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/fleet/clusterinfo"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/fleet/sessions"
	"github.com/argomesh/argomesh/identity"
)

// clusterInfoWriter returns what shows the agents as clusters in the hub's Redis
// until its context is done. Without an address of Redis it says so, and does
// nothing.
func clusterInfoWriter(cfg principalconfig.Config, from sessions.Clusters, registry prometheus.Registerer,
	log zerolog.Logger) (run func(context.Context) error, err error) {
	if cfg.Redis.Address == "" {
		log.Info().Msg("redis.address is not set, so the hub's Argo CD does not show whether agents are connected")
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
