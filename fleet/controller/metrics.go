package controller

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	reconciles   *prometheus.CounterVec
	secretWrites *prometheus.CounterVec
	statusWrites prometheus.Counter
}

// Values of the label result.
const (
	resultOK    = "ok"
	resultError = "error"
)

// Values of the label verb.
const (
	verbCreate  = "create"
	verbUpdate  = "update"
	verbRestore = "restore"
	verbDelete  = "delete"
)

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		reconciles: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_fleet_reconciles_total",
			Help: "Passes over an Agent, by result.",
		}, []string{"result"}),
		secretWrites: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_fleet_cluster_secret_writes_total",
			Help: "Writes of cluster Secrets: create, update after a change of the Agent, restore after a change by others, delete.",
		}, []string{"verb"}),
		statusWrites: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argomesh_fleet_status_writes_total",
			Help: "Writes of the status of an Agent.",
		}),
	}
	for _, c := range []prometheus.Collector{m.reconciles, m.secretWrites, m.statusWrites} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of the agent controller: %w", err)
		}
	}
	return m, nil
}
