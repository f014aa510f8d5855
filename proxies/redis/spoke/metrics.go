package spoke

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// spokeMetrics are those of the spoke's end.
type spokeMetrics struct {
	connections prometheus.Gauge
	bytes       prometheus.Gauge
	waiting     prometheus.Gauge
	mismatch    prometheus.Gauge
	commands    *prometheus.CounterVec
}

func newSpokeMetrics(r prometheus.Registerer) (*spokeMetrics, error) {
	m := &spokeMetrics{
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_redis_spoke_connections", Help: "Open connections of the hub to this spoke's redis.",
		}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_redis_spoke_bytes",
			Help: "Bytes of long values that are on their way from this spoke's redis to the hub.",
		}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_redis_spoke_waiting", Help: "Reads of long values that wait until others have gone to the hub.",
		}),
		mismatch: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_redis_spoke_format_mismatch",
			Help: "1 while this spoke's argo cd keeps its cache in another format than the agent is configured for.",
		}),
		commands: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_redis_spoke_commands_total",
			Help: "Commands of the hub by result: ok, denied, another format, or failed.",
		}, []string{"result"}),
	}
	if r == nil {
		return nil, errors.New("metrics are required")
	}
	var problems []error
	for _, c := range []prometheus.Collector{m.connections, m.bytes, m.waiting, m.mismatch, m.commands} {
		problems = append(problems, r.Register(c))
	}
	return m, errors.Join(problems...)
}
