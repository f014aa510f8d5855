package main

import (
	"github.com/argomesh/argomesh/cmd/internal/agentconfig"
	"github.com/argomesh/argomesh/cmd/internal/start"
	"github.com/argomesh/argomesh/proxies/access"
	resource "github.com/argomesh/argomesh/proxies/resource/spoke"
	"github.com/argomesh/argomesh/stream/tunnel"
)

// newLiveAccess returns what serves connections of the hub to this spoke's Kubernetes
// API. While live access is off that tells the version and Kubernetes' own kinds.
func newLiveAccess(cfg agentconfig.Config, base *start.Base) (serve tunnel.Handler, err error) {
	policy, err := access.New(access.Spoke, cfg.Access)
	if err != nil {
		return nil, err
	}
	live, err := resource.New(resource.Config{
		REST: base.REST, Policy: policy, TrackingLabel: cfg.Access.TrackingLabel,
		MaxCalls: cfg.LiveAccess.MaxCalls, CallsPerSecond: cfg.LiveAccess.CallsPerSecond,
		Tracer: base.Tracer, Metrics: base.Metrics, Log: base.Log,
	})
	if err != nil {
		return nil, err
	}
	return live.Serve, nil
}
