package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/cmd/internal/agentconfig"
	"github.com/argomesh/argomesh/identity"
)

// newBudget returns what the hub may have this process write, full.
func newBudget(l agentconfig.Limits, name identity.AgentName, metrics prometheus.Registerer) (*budget.Peer, error) {
	p := budget.NewPeer(name.String(), budget.Limits{
		Writes: budget.Limit{Rate: l.WritesPerSecond, Burst: l.WritesBurst},
		Bytes:  budget.Limit{Rate: l.BytesPerSecond, Burst: l.BytesBurst},
	}, nil, time.Now())
	return p, budget.RegisterLevels(metrics, func(yield func(identity.AgentName, *budget.Peer)) { yield(name, p) })
}
