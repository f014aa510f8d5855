package main

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/bounds"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/fleet/hub"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// budgets are what agents may have this principal write. One of an agent outlives its
// link: what was used stays used when the link begins anew. Its methods may be called
// concurrently.
type budgets struct {
	common *budget.Common

	mu    sync.Mutex // guards peers
	peers map[identity.AgentName]*budget.Peer
}

// newBudgets returns full ones.
func newBudgets(limits principalconfig.Limits, metrics prometheus.Registerer) (*budgets, error) {
	b := &budgets{common: budget.NewCommon(limits.Common(), time.Now()), peers: map[identity.AgentName]*budget.Peer{}}
	if err := budget.RegisterLevels(metrics, b.all); err != nil {
		return nil, err
	}
	common := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "argomesh_common_budget_bytes",
		Help: "Bytes that all agents together may still have this principal write; below zero they wait.",
	}, func() float64 {
		return float64(b.common.Level(time.Now()))
	})
	if err := metrics.Register(common); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return b, nil
}

// of returns the budget of an agent, a new one when it has none yet.
func (b *budgets) of(name identity.AgentName, a v1alpha1.Agent) *budget.Peer {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peers[name]
	if p == nil {
		p = budget.NewPeer(name.String(), limitsOf(a.Spec.Limits), b.common, time.Now())
		b.peers[name] = p
	}
	return p
}

// forget drops that of an agent that is no longer registered.
func (b *budgets) forget(name identity.AgentName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.peers[name]; p != nil {
		p.Leave()
		delete(b.peers, name)
	}
}

// all calls yield with each.
func (b *budgets) all(yield func(identity.AgentName, *budget.Peer)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, p := range b.peers {
		yield(name, p)
	}
}

// limitsOf are those of an Agent, the defaults where it says nothing.
func limitsOf(l *v1alpha1.AgentLimits) budget.Limits {
	limits := budget.DefaultLimits()
	if l != nil {
		limits.Writes.Rate, limits.Writes.Burst = cmp.Or(l.WritesPerSecond, limits.Writes.Rate), cmp.Or(l.WritesBurst, limits.Writes.Burst)
		limits.Bytes.Rate, limits.Bytes.Burst = cmp.Or(l.BytesPerSecond, limits.Bytes.Rate), cmp.Or(l.BytesBurst, limits.Bytes.Burst)
	}
	return limits
}

// leftOf is what a status says of what is left; nil when nothing is missing.
func leftOf(p *budget.Peer, now time.Time) *v1alpha1.AgentBudget {
	if p.Full(now) {
		return nil
	}
	left := p.Levels(now)
	return &v1alpha1.AgentBudget{Writes: left.Writes, Bytes: left.Bytes, At: metav1.NewTime(left.At)}
}

// levelsOf is what a status says, the zero value for nothing.
func levelsOf(b *v1alpha1.AgentBudget) budget.Levels {
	if b == nil {
		return budget.Levels{}
	}
	return budget.Levels{Writes: b.Writes, Bytes: b.Bytes, At: b.At.UTC()}
}

// keepInterval is how often what is left of the common budget is written.
const keepInterval = time.Minute

// keep has ConfigMap argomesh-hub say what is left of the common budget, until ctx is done.
// What is not written in an interval follows in the next.
func (b *budgets) keep(ctx context.Context, keeper hub.Keeper, log zerolog.Logger) error {
	again := time.NewTicker(keepInterval)
	defer again.Stop()
	var said hub.Common
	for {
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
		now := time.Now()
		if !b.common.Unsaid(said.Bytes, said.At, now) {
			continue
		}
		next := hub.Common{Bytes: b.common.Level(now), At: now}
		if err := keeper.KeepCommon(ctx, next); err == nil {
			said = next
		} else if ctx.Err() == nil {
			log.Warn().Err(err).Msg("cannot keep what is left of the budget of all agents, trying again")
		}
	}
}

// boundsOf are those of an Agent, the defaults where it says nothing.
func boundsOf(l *v1alpha1.AgentLimits) bounds.Bounds {
	b := bounds.Default()
	if l != nil {
		b.Applications, b.AppProjects = cmp.Or(int(l.Applications), b.Applications), cmp.Or(int(l.AppProjects), b.AppProjects)
		b.ApplicationBytes, b.AppProjectBytes = cmp.Or(int(l.ApplicationBytes), b.ApplicationBytes), cmp.Or(int(l.AppProjectBytes), b.AppProjectBytes)
		b.TotalBytes = cmp.Or(l.TotalBytes, b.TotalBytes)
	}
	return b
}

// overBudget says for people which limit a link exceeds; nil for none.
func overBudget(stats mirror.Stats) *controller.OverBudget {
	const waits = "; what it changes waits, and the newest of it is written as soon as it may be"
	switch stats.Over {
	case budget.OverWrites:
		return &controller.OverBudget{
			Reason:  "Writes",
			Message: stats.Over.Sentence() + waits + ". To raise it, set spec.limits.writesPerSecond and writesBurst of the Agent",
		}
	case budget.OverBytes:
		return &controller.OverBudget{
			Reason:  "Bytes",
			Message: stats.Over.Sentence() + waits + ". To raise it, set spec.limits.bytesPerSecond and bytesBurst of the Agent",
		}
	case budget.OverCommon:
		return &controller.OverBudget{
			Reason:  "CommonBytes",
			Message: stats.Over.Sentence() + waits + ". To raise it, set limits.bytes_per_second and limits.bytes_burst of the principal, if the hub's etcd has room",
		}
	}
	for _, refusal := range stats.Parked {
		if refusal.Kind == stream.RefusalOverLimit {
			return &controller.OverBudget{
				Reason:  "Objects",
				Message: "objects are larger, or more, than a limit admits; status.parked names them, and which limit can be raised",
			}
		}
	}
	return nil
}
