package tunnel

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/stream"
)

// Metrics is what both ends measure.
type Metrics struct {
	Spare       prometheus.Gauge
	Connections *prometheus.GaugeVec
	bytes       *prometheus.CounterVec
	Violations  *prometheus.CounterVec
	unread      prometheus.Gauge
	overruns    prometheus.Counter
}

// NewMetrics registers nothing: see Collectors.
func NewMetrics() Metrics {
	m := Metrics{
		Spare: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_tunnel_spare_streams", Help: "Streams of the tunnel that wait to be taken.",
		}),
		Connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_tunnel_connections", Help: "Connections through the tunnel, by service.",
		}, []string{"service"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_tunnel_bytes_total", Help: "Bytes of connections through the tunnel, by service and direction.",
		}, []string{"service", "direction"}),
		Violations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_tunnel_violations_total",
			Help: "Streams of the tunnel that ended since the peer broke the protocol, by how.",
		}, []string{"kind"}),
		unread: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_tunnel_unread_bytes", Help: "Bytes that came through the tunnel and wait to be read.",
		}),
		overruns: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argomesh_tunnel_overruns_total",
			Help: "Streams of the tunnel that ended since more waited to be read than may.",
		}),
	}
	for _, v := range stream.Violations() {
		m.Violations.WithLabelValues(string(v)) // so that the first one is seen as a change
	}
	return m
}

// Collectors are what is to be registered.
func (m Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.Spare, m.Connections, m.bytes, m.Violations, m.unread, m.overruns}
}

// Received counts the bytes of a service that come through the tunnel.
func (m Metrics) Received(s stream.Service) prometheus.Counter {
	return m.bytes.WithLabelValues(s.String(), "received")
}

// Sent counts those that leave through it.
func (m Metrics) Sent(s stream.Service) prometheus.Counter {
	return m.bytes.WithLabelValues(s.String(), "sent")
}

// Register registers collectors. Nil for r is an error.
func Register(r prometheus.Registerer, collectors []prometheus.Collector) error {
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// Unread returns a bound of most bytes of one peer, and of what is common to all; nil where there
// is one peer.
func (m Metrics) Unread(most int64, common *Common) *Unread {
	return &Unread{most: most, common: common, bytes: m.unread, overruns: m.overruns}
}
