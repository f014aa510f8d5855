package main

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/cmd/internal/meshconfig"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/meshpolicy"
)

// newMeshPolicy returns what looks after the objects of the hub's mesh: those that
// mesh.live names, which may be none.
func newMeshPolicy(cfg principalconfig.Config, client dynamic.Interface, agents *fleet.Registry,
	metrics prometheus.Registerer, log zerolog.Logger) (*meshpolicy.Controller, error) {
	var parts []meshpolicy.Part
	for _, part := range cfg.Mesh.Parts(cfg.Namespace) {
		if part.Live == "" {
			continue
		}
		parts = append(parts, meshpolicy.Part{
			Name: part.Name, Apply: part.Live == meshconfig.LiveApply,
			Places: part.Places, Render: part.Render, Verify: part.Verify,
		})
	}
	return meshpolicy.New(meshpolicy.Config{
		Client: client, Namespace: cfg.Namespace, Parts: parts, Registry: agents, Metrics: metrics, Log: log,
	})
}
