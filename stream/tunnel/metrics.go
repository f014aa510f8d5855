package tunnel

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/stream"
)

// common is what both ends measure.
type common struct {
	spare       prometheus.Gauge
	connections *prometheus.GaugeVec
	bytes       *prometheus.CounterVec
	violations  *prometheus.CounterVec
}

func newCommon() common {
	m := common{
		spare: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_tunnel_spare_streams", Help: "Streams of the tunnel that wait to be taken.",
		}),
		connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_tunnel_connections", Help: "Connections through the tunnel, by service.",
		}, []string{"service"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_tunnel_bytes_total", Help: "Bytes of connections through the tunnel, by service and direction.",
		}, []string{"service", "direction"}),
		violations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_tunnel_violations_total", Help: "Streams of the tunnel that ended since the peer broke the protocol, by how.",
		}, []string{"kind"}),
	}
	for _, v := range stream.Violations() {
		m.violations.WithLabelValues(string(v)) // so that the first one is seen as a change
	}
	return m
}

func (m common) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.spare, m.connections, m.bytes, m.violations}
}

func (m common) received(s stream.Service) prometheus.Counter {
	return m.bytes.WithLabelValues(s.String(), "received")
}

func (m common) sent(s stream.Service) prometheus.Counter {
	return m.bytes.WithLabelValues(s.String(), "sent")
}

func register(r prometheus.Registerer, collectors []prometheus.Collector) error {
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}
