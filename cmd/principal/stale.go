package main

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// stale says of the Applications of agents that are away that this is so.
type stale struct {
	core   *core
	teller *mirror.Stale
	writes *prometheus.CounterVec
}

// newStale starts nothing.
func newStale(c *core) (*stale, error) {
	s := &stale{core: c, writes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "argomesh_stale_writes_total",
		Help: "Writes of condition ArgomeshStaleWarning to Applications of the hub, by what it says of the agent (away, or back: it goes) and result.",
	}, []string{"says", "result"})}
	s.teller = mirror.NewStale(mirror.StaleConfig{
		Store: c.store, Away: s.away, Owner: s.owner, Applications: s.applications, Link: s.link, Divisions: c.agents.Divisions, Wrote: s.wrote,
		Log: c.base.Log,
	})
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "argomesh_stale_waiting_agents",
		Help: "Agents of which Applications are still to be looked at for condition ArgomeshStaleWarning, by the principal that holds the Lease.",
	}, func() float64 {
		return float64(s.teller.Waiting())
	})
	return s, errors.Join(c.base.Metrics.Register(s.writes), c.base.Metrics.Register(waiting))
}

// Run is for the principal that holds the Lease.
func (s *stale) Run(ctx context.Context) error { return s.teller.Run(ctx) }

func (s *stale) away() (map[identity.AgentName]mirror.Absence, bool) {
	absences, known := s.core.agents.Absences(time.Now())
	out := make(map[identity.AgentName]mirror.Absence, len(absences))
	for name, absence := range absences {
		out[name] = mirror.Absence(absence)
	}
	return out, known && s.core.links.owners.settled()
}

func (s *stale) owner(o backends.Object) (identity.AgentName, bool) {
	return s.core.links.owners.ownerOf(o)
}

// applications need no link: there is none for a moment when an agent's rules change.
func (s *stale) applications(name identity.AgentName) []backends.Object {
	a, known := s.core.agents.Agent(name)
	if !known {
		return nil // its Agent goes, after which they are looked at as nobody's
	}
	return s.core.links.owners.list(s.core.links.rulesOf(name, a))
}

func (s *stale) link(name identity.AgentName) (mirror.Rules, *budget.Peer, bool) {
	r := s.core.links.link(name)
	if r == nil {
		return mirror.Rules{}, nil, false
	}
	return r.rules, r.budget, true
}

func (s *stale) wrote(away bool, err error) {
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
