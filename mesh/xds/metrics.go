package xds

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	streams   prometheus.Gauge
	refused   *prometheus.CounterVec
	resources *prometheus.GaugeVec
	answers   *prometheus.CounterVec
	bytes     *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_xds_streams",
			Help: "Envoys that are connected.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_xds_refused_streams_total",
			Help: "Streams that were refused, by reason: limit, node, type.",
		}, []string{"reason"}),
		resources: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_xds_resources",
			Help: "Resources that are served.",
		}, []string{"type"}),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_xds_answers_total",
			Help: "What Envoy said about updates, by result: acknowledged, rejected.",
		}, []string{"type", "result"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_xds_sent_bytes_total",
			Help: "Length of the updates sent.",
		}, []string{"type"}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.streams, m.refused, m.resources, m.answers, m.bytes} {
		errs = append(errs, registerer.Register(c))
	}
	return m, errors.Join(errs...)
}
