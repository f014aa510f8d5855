package meshpolicy

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	passes      *prometheus.CounterVec
	writes      *prometheus.CounterVec
	differences *prometheus.GaugeVec
}

// verbRestore is the one value of the label verb that is no objects.Action.
const verbRestore = "restore"

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		passes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_mesh_policy_passes_total",
			Help: "Comparisons of the mesh's objects with what they should be, by product and result.",
		}, []string{"part", "result"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_mesh_policy_writes_total",
			Help: "Writes of the mesh's objects: create, update after a change of the Agents, restore after a change by others, delete.",
		}, []string{"part", "verb"}),
		differences: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_mesh_policy_differences",
			Help: "Ways in which the mesh's objects are not as they should be, by product, when last compared.",
		}, []string{"part"}),
	}
	for _, c := range []prometheus.Collector{m.passes, m.writes, m.differences} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of the mesh policy: %w", err)
		}
	}
	return m, nil
}

// passed counts a pass over a part.
func (m *metrics) passed(part string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.passes.WithLabelValues(part, result).Inc()
}
