package main

import (
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/start"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/resource"
	"github.com/argomesh/argomesh/stream/tunnel"
)

// LiveAccess bounds what the hub does with this spoke's Kubernetes API. What it may do
// is block access. Key: live_access.
type LiveAccess struct {
	MaxCalls int `koanf:"max_calls" help:"calls of the hub under way at a time, watches and sessions included; more are answered 429"`
}

// DefaultLiveAccess serves a thousand callers.
func DefaultLiveAccess() LiveAccess { return LiveAccess{MaxCalls: 1024} }

// Validate reports every problem.
func (l LiveAccess) Validate() error {
	if l.MaxCalls < 1 {
		return config.Invalid("max_calls", "%d admits no call: use 1 or more, or leave access.enabled false", l.MaxCalls)
	}
	return nil
}

// newLiveAccess returns what serves connections of the hub to this spoke's Kubernetes
// API. While live access is off that tells the version and Kubernetes' own kinds.
func newLiveAccess(cfg Config, base *start.Base) (serve tunnel.Handler, err error) {
	policy, err := access.New(access.Spoke, cfg.Access)
	if err != nil {
		return nil, err
	}
	spoke, err := resource.NewSpoke(resource.SpokeConfig{
		REST: base.REST, Policy: policy, TrackingLabel: cfg.Access.TrackingLabel, MaxCalls: cfg.LiveAccess.MaxCalls,
		Tracer: base.Tracer, Metrics: base.Metrics, Log: base.Log,
	})
	if err != nil {
		return nil, err
	}
	return spoke.Serve, nil
}
