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

type dialerMetrics struct {
	common
	waiting *prometheus.GaugeVec
	dials   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

func newDialerMetrics(r prometheus.Registerer) (*dialerMetrics, error) {
	m := &dialerMetrics{
		common: newCommon(),
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
	return m, register(r, append(m.collectors(), m.waiting, m.dials, m.seconds))
}

type acceptorMetrics struct {
	common
	carriers prometheus.Gauge
	connects *prometheus.CounterVec
	accepts  *prometheus.CounterVec
}

func newAcceptorMetrics(r prometheus.Registerer) (*acceptorMetrics, error) {
	m := &acceptorMetrics{
		common: newCommon(),
		carriers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_tunnel_carriers", Help: "TCP connections to the principal that carry streams of the tunnel.",
		}),
		connects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_tunnel_streams_total", Help: "Streams of the tunnel that were opened, by gRPC code of what became of them.",
		}, []string{"result"}),
		accepts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_tunnel_accepts_total", Help: "Connections that the principal asked for, by service and by what became of them.",
		}, []string{"service", "result"}),
	}
	return m, register(r, append(m.collectors(), m.carriers, m.connects, m.accepts))
}

func register(r prometheus.Registerer, collectors []prometheus.Collector) error {
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}
