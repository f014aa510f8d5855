package main

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/stale"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// staleness says of the Applications of agents that are away that this is so.
type staleness struct {
	core   *hubCore
	marker *stale.Marker
	writes *prometheus.CounterVec
}

// newStale starts nothing.
func newStale(c *hubCore) (*staleness, error) {
	s := &staleness{core: c, writes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "argomesh_stale_writes_total",
		Help: "Writes of condition ArgomeshStaleWarning to Applications of the hub, by what it says of the agent (away, or back: it goes) and result.",
	}, []string{"says", "result"})}
	s.marker = stale.New(stale.Config{
		Store: c.store, Away: s.away, Owner: s.owner, Applications: s.applications, Link: s.link,
		Divisions: c.agents.Divisions, Wrote: s.wrote,
		Log: c.base.Log,
	})
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "argomesh_stale_waiting_agents",
		Help: "Agents of which Applications are still to be looked at for condition ArgomeshStaleWarning, by the principal that holds the Lease.",
	}, func() float64 {
		return float64(s.marker.Waiting())
	})
	return s, errors.Join(c.base.Metrics.Register(s.writes), c.base.Metrics.Register(waiting))
}

// Run is for the principal that holds the Lease.
func (s *staleness) Run(ctx context.Context) error { return s.marker.Run(ctx) }

func (s *staleness) away() (map[identity.AgentName]stale.Absence, bool) {
	absences, known := s.core.agents.Absences(time.Now())
	out := make(map[identity.AgentName]stale.Absence, len(absences))
	for name, absence := range absences {
		out[name] = stale.Absence(absence)
	}
	return out, known && s.core.owners.Known()
}

func (s *staleness) owner(o backends.Object) (identity.AgentName, bool) {
	return s.core.owners.OwnerOf(o)
}

// applications need no link: there is none for a moment when an agent's rules change.
func (s *staleness) applications(name identity.AgentName) []backends.Object {
	a, known := s.core.agents.Agent(name)
	if !known {
		return nil // its Agent goes, after which they are looked at as no one's
	}
	return s.core.owners.List(s.core.links.RulesOf(name, a))
}

func (s *staleness) link(name identity.AgentName) (ownership.Rules, *budget.Peer, bool) {
	return s.core.links.Of(name)
}

func (s *staleness) wrote(away bool, err error) {
	says, result := "back", "ok"
	if away {
		says = "away"
	}
	switch {
	case errors.Is(err, stream.ErrConflict), errors.Is(err, stream.ErrNotFound):
		result = "conflict"
	case err != nil:
		result = "error"
	}
	s.writes.WithLabelValues(says, result).Inc()
}
