package dialer

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/stream/tunnel"
)

type dialerMetrics struct {
	tunnel.Metrics
	waiting *prometheus.GaugeVec
	dials   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

func newDialerMetrics(r prometheus.Registerer) (*dialerMetrics, error) {
	m := &dialerMetrics{
		Metrics: tunnel.NewMetrics(),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_tunnel_waiting_dials", Help: "Dials that wait for a spare stream, by service.",
		}, []string{"service"}),
		dials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_tunnel_dials_total", Help: "Dials of services of agents, by service and by what became of them.",
		}, []string{"service", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "argomesh_tunnel_dial_seconds", Help: "How long dials took that succeeded, by service.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"service"}),
	}
	return m, tunnel.Register(r, append(m.Collectors(), m.waiting, m.dials, m.seconds))
}
