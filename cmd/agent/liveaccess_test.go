package main

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/cmd/internal/agentconfig"
	"github.com/argomesh/argomesh/cmd/internal/start"
	"github.com/argomesh/argomesh/proxies/access"
)

func TestNewLiveAccess(t *testing.T) {
	base := &start.Base{
		Log: zerolog.Nop(), Metrics: prometheus.NewRegistry(), Tracer: noop.NewTracerProvider().Tracer(""), REST: &rest.Config{Host: "http://127.0.0.1:1"},
	}
	for _, config := range []access.Config{{}, {Enabled: true}} { // off, it tells what the spoke is
		cfg := agentconfig.Default()
		cfg.Access, base.Metrics = config, prometheus.NewRegistry()
		if serve, err := newLiveAccess(cfg, base); serve == nil || err != nil {
			t.Errorf("newLiveAccess() with %+v = %v", config, err)
		}
	}
	if err := (agentconfig.LiveAccess{}).Validate(); err == nil {
		t.Error("no call at all is taken for a limit")
	}
}
