package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/untaken"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/events"
	"github.com/argomesh/argomesh/fleet/hubclusters"
)

// unclaimed says of the Applications that no agent takes that this is so.
type unclaimed struct {
	core     *hubCore
	clusters *hubclusters.Clusters
	number   prometheus.Gauge
}

// newUntaken starts nothing.
func newUntaken(c *hubCore) (*unclaimed, error) {
	u := &unclaimed{
		core:     c,
		clusters: hubclusters.New(c.base.Dynamic, c.cfg.Namespace, c.base.Log),
		number: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_untaken_applications",
			Help: "Applications of the hub that no agent takes and that say so in condition ArgomeshError, counted by the principal that holds the Lease.",
		}),
	}
	return u, c.base.Metrics.Register(u.number)
}

// Run is for the principal that holds the Lease.
func (u *unclaimed) Run(ctx context.Context) error {
	defer u.number.Set(0)
	reporter := &untaken.Reporter{
		Store: u.core.store, Selector: u.core.cfg.Mapping.LabelSelector(), Verdicts: u.verdicts, Changed: u.changed(ctx),
		Event: func(ctx context.Context, about backends.Object, message string) error {
			return events.Warn(ctx, u.core.base.Dynamic, about, reasonNotTaken, message)
		},
		Count: func(ctx context.Context, n int) error {
			u.number.Set(float64(n))
			ctx, cancel := context.WithTimeout(ctx, events.Timeout) // other writes wait
			defer cancel()
			return u.core.hub.Store.SaveUntaken(ctx, n)
		},
		Log: u.core.base.Log,
	}
	return together(ctx, u.clusters.Run, reporter.Run)
}

// verdicts is untaken.Reporter.Verdicts.
func (u *unclaimed) verdicts() (func(string, mapping.Placement) (string, bool), bool) {
	names, servers, known := u.clusters.Known()
	if !known || u.core.agents.Ready() != nil {
		return nil, false
	}
	untaken := u.core.agents.Untaken(fleet.Deployer{Controller: u.core.cfg.Hub.ApplicationController, Names: names,
		Servers: servers})
	return func(name string, p mapping.Placement) (string, bool) {
		v := untaken(name, p)
		return v.Message, v.EndsSync
	}, true
}

// changed is untaken.Reporter.Changed: whose an Application is has changed, or which clusters
// there are. The Agents' own status, which changes all the time, is no such change.
func (u *unclaimed) changed(ctx context.Context) func() <-chan struct{} {
	return func() <-chan struct{} {
		out := make(chan struct{})
		agents, clusters, divisions := u.core.agents.Changed(), u.clusters.Changed(), u.core.agents.Divisions()
		go func() {
			defer close(out)
			u.await(ctx, agents, clusters, divisions)
		}()
		return out
	}
}

// await waits until clusters is closed or the registry divides the hub otherwise, which it may
// have said by agents.
func (u *unclaimed) await(ctx context.Context, agents, clusters <-chan struct{}, divisions uint64) {
	for {
		select {
		case <-agents:
			agents = u.core.agents.Changed()
			if u.core.agents.Divisions() == divisions {
				continue
			}
		case <-clusters:
		case <-ctx.Done():
		}
		return
	}
}

// reasonNotTaken is the reason of those Events.
const reasonNotTaken = "NotTaken"
