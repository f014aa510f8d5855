package main

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/identity"
)

// Limits bound what the hub may have the agent write to the spoke's API server. Key:
// limits.
type Limits struct {
	WritesPerSecond int64 `koanf:"writes_per_second" help:"writes that the hub may have the agent make on the spoke in a second"`
	WritesBurst     int64 `koanf:"writes_burst" help:"the same at once, as for a first sync, after an hour without any"`
	BytesPerSecond  int64 `koanf:"bytes_per_second" help:"bytes that the hub may have the agent write on the spoke in a second, of the objects as its API server keeps them"`
	BytesBurst      int64 `koanf:"bytes_burst" help:"the same at once, as for a first sync, after an hour without any"`
}

// DefaultLimits are those of an agent towards its hub.
func DefaultLimits() Limits {
	d := budget.DefaultLimits()
	return Limits{
		WritesPerSecond: d.Writes.Rate, WritesBurst: d.Writes.Burst, BytesPerSecond: d.Bytes.Rate, BytesBurst: d.Bytes.Burst,
	}
}

// Validate reports every problem.
func (l Limits) Validate() error {
	var problems []error
	for _, c := range []struct {
		key          string
		value, least int64
	}{
		{"writes_per_second", l.WritesPerSecond, 1}, {"writes_burst", l.WritesBurst, 1},
		{"bytes_per_second", l.BytesPerSecond, 1024}, {"bytes_burst", l.BytesBurst, 1024},
	} {
		if c.value < c.least {
			problems = append(problems, config.Invalid(c.key, "%d lets the hub change nothing: use %d or more", c.value, c.least))
		}
	}
	return errors.Join(problems...)
}

// newBudget returns what the hub may have this process write, full.
func newBudget(l Limits, name identity.AgentName, metrics prometheus.Registerer) (*budget.Peer, error) {
	p := budget.NewPeer(name.String(), budget.Limits{
		Writes: budget.Limit{Rate: l.WritesPerSecond, Burst: l.WritesBurst},
		Bytes:  budget.Limit{Rate: l.BytesPerSecond, Burst: l.BytesBurst},
	}, nil, time.Now())
	return p, mirror.RegisterLevels(metrics, func(yield func(identity.AgentName, *budget.Peer)) { yield(name, p) })
}
