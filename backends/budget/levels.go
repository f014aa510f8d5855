package budget

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/identity"
)

// RegisterLevels registers gauges of what is left of the budgets that all calls yield
// with, by agent.
func RegisterLevels(r prometheus.Registerer, all func(yield func(identity.AgentName, *Peer))) error {
	l := &levels{
		all: all,
		writes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_mirror_budget_writes",
			Help: "Writes that the peer may still have us make; below zero what it changes waits.",
		}, []string{"agent"}),
		bytes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_mirror_budget_bytes",
			Help: "Bytes that the peer may still have us write; below zero what it changes waits.",
		}, []string{"agent"}),
	}
	if err := r.Register(l); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// levels is a prometheus.Collector, which looks at the budgets when it is asked.
type levels struct {
	all func(yield func(identity.AgentName, *Peer))

	mu            sync.Mutex // of one Collect at a time
	writes, bytes *prometheus.GaugeVec
}

// Describe implements prometheus.Collector.
func (l *levels) Describe(descs chan<- *prometheus.Desc) {
	l.writes.Describe(descs)
	l.bytes.Describe(descs)
}

// Collect implements prometheus.Collector.
func (l *levels) Collect(metrics chan<- prometheus.Metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes.Reset() // of agents that went
	l.bytes.Reset()
	now := time.Now()
	l.all(func(name identity.AgentName, p *Peer) {
		left := p.Levels(now)
		l.writes.WithLabelValues(name.String()).Set(float64(left.Writes))
		l.bytes.WithLabelValues(name.String()).Set(float64(left.Bytes))
	})
	l.writes.Collect(metrics)
	l.bytes.Collect(metrics)
}
