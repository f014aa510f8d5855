package main

import (
	"context"
	"fmt"

	"github.com/argomesh/argomesh/stream/tunnel/acceptor"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/cmd/internal/agentconfig"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/tunnel"
)

// newTunnel makes the spoke's end of the tunnel.
func newTunnel(cfg agentconfig.Config, source *workload.Source, by authentication,
	services map[stream.Service]tunnel.Handler, metrics prometheus.Registerer,
	log zerolog.Logger) (*acceptor.Acceptor, error) {
	a, err := acceptor.New(acceptor.Config{
		Target:      cfg.Principal.Address,
		Credentials: by.credentials,
		Mutual:      by.Mutual,
		Agent:       cfg.Name,
		Services:    services,
		Updated:     source.Updated,
		Proves:      by.proves,
		Ready:       source.Ready,
		While: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return source.While(ctx, withdrawalGrace)
		},
		MaxStreams: cfg.Tunnel.MaxStreams, MinSpares: cfg.Tunnel.MinSpares, MaxSpares: cfg.Tunnel.MaxSpares,
		Metrics: metrics, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("tunnel: %w", err)
	}
	return a, nil
}
