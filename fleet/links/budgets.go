package links

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/fleet/agentwatch"
	"github.com/argomesh/argomesh/fleet/hub"
	"github.com/argomesh/argomesh/identity"
)

// Budgets are what agents may have this principal write. One of an agent outlives its
// link: what was used stays used when the link starts over. Its methods may be called
// concurrently.
type Budgets struct {
	common *budget.Common

	mu    sync.Mutex // guards peers
	peers map[identity.AgentName]*budget.Peer
}

// NewBudgets returns full ones.
func NewBudgets(common budget.Limit, metrics prometheus.Registerer) (*Budgets, error) {
	b := &Budgets{common: budget.NewCommon(common, time.Now()), peers: map[identity.AgentName]*budget.Peer{}}
	if err := budget.RegisterLevels(metrics, b.all); err != nil {
		return nil, err
	}
	level := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "argomesh_common_budget_bytes",
		Help: "Bytes that all agents together may still have this principal write; below zero they wait.",
	}, func() float64 {
		return float64(b.common.Level(time.Now()))
	})
	if err := metrics.Register(level); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return b, nil
}

// of returns the budget of an agent, a new one when it has none yet.
func (b *Budgets) of(name identity.AgentName, a v1alpha1.Agent) *budget.Peer {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[name]
	if p == nil {
		p = budget.NewPeer(name.String(), agentwatch.LimitsOf(a.Spec.Limits), b.common, time.Now())
		b.peers[name] = p
	}
	return p
}

// forget drops that of an agent that is no longer registered.
func (b *Budgets) forget(name identity.AgentName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.peers[name]; p != nil {
		p.Leave()
		delete(b.peers, name)
	}
}

// all calls yield with each.
func (b *Budgets) all(yield func(identity.AgentName, *budget.Peer)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, p := range b.peers {
		yield(name, p)
	}
}

// Save has ConfigMap argomesh-hub say what is left of the common budget, until ctx is done.
func (b *Budgets) Save(ctx context.Context, store hub.Store, log zerolog.Logger) error {
	return budget.SavePeriodically(ctx, func(written hub.Common, now time.Time) (hub.Common, bool) {
		return hub.Common{Bytes: b.common.Level(now), At: now}, b.common.ReportDue(written.Bytes, written.At, now)
	}, store.SaveCommon, func(err error) {
		log.Warn().Err(err).Msg("cannot save what is left of the budget of all agents, retrying")
	})
}
