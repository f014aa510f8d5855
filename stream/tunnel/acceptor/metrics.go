package acceptor

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/stream/tunnel"
)

type acceptorMetrics struct {
	tunnel.Metrics
	transports prometheus.Gauge
	connects   *prometheus.CounterVec
	accepts    *prometheus.CounterVec
}

func newAcceptorMetrics(r prometheus.Registerer) (*acceptorMetrics, error) {
	m := &acceptorMetrics{
		Metrics: tunnel.NewMetrics(),
		transports: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_tunnel_carriers", Help: "TCP connections to the principal that carry streams of the tunnel.",
		}),
		connects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_tunnel_streams_total",
			Help: "Streams of the tunnel that were opened, by gRPC code of what became of them.",
		}, []string{"result"}),
		accepts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_tunnel_accepts_total",
			Help: "Connections that the principal asked for, by service and by what became of them.",
		}, []string{"service", "result"}),
	}
	return m, tunnel.Register(r, append(m.Collectors(), m.transports, m.connects, m.accepts))
}
