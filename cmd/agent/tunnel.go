package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/tunnel"
)

// Tunnel bounds the connections by which the hub reaches services of the spoke.
// Key: tunnel.
type Tunnel struct {
	MaxStreams int `koanf:"max_streams" help:"open tunnel streams at a time, spare or in use; more connections of the hub wait, and fail after 5 s"`
	MinSpares  int `koanf:"min_spares" help:"streams that are kept open for the next connections of the hub, at least"`
	MaxSpares  int `koanf:"max_spares" help:"streams that are kept open for the next connections of the hub, at most; demand decides"`
}

// DefaultTunnel serves a thousand callers.
func DefaultTunnel() Tunnel { return Tunnel{MaxStreams: 1024, MinSpares: 2, MaxSpares: 64} }

// Validate reports every problem.
func (t Tunnel) Validate() error {
	var problems []error
	if t.MinSpares < 1 {
		problems = append(problems, config.Invalid("min_spares", "%d leaves the hub no way in: use 1 or more", t.MinSpares))
	}
	if t.MaxSpares < t.MinSpares {
		problems = append(problems, config.Invalid("max_spares", "%d is less than tunnel.min_spares: use %d or more", t.MaxSpares, t.MinSpares))
	}
	if t.MaxStreams <= t.MinSpares {
		problems = append(problems, config.Invalid("max_streams", "%d leaves nothing beside tunnel.min_spares: use more than %d", t.MaxStreams, t.MinSpares))
	}
	return errors.Join(problems...)
}

// newTunnel makes the spoke's end of the tunnel.
func newTunnel(cfg Config, source *workload.Source, by authentication, services map[stream.Service]tunnel.Handler, metrics prometheus.Registerer, log zerolog.Logger) (*tunnel.Acceptor, error) {
	a, err := tunnel.NewAcceptor(tunnel.AcceptorConfig{
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
