package kube

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

type metrics struct {
	objects       *prometheus.GaugeVec
	bytes         *prometheus.GaugeVec
	failing       *prometheus.GaugeVec
	failures      *prometheus.CounterVec
	expired       *prometheus.CounterVec
	historyBreaks *prometheus.CounterVec
	requests      *prometheus.CounterVec
	seconds       *prometheus.HistogramVec
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		objects: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_store_objects",
			Help: "Objects in the cache.",
		}, []string{"kind"}),
		bytes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_store_object_bytes",
			Help: "Length of the objects in the cache, as JSON.",
		}, []string{"kind"}),
		failing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_store_failing_informers",
			Help: "Informers whose last list or watch failed.",
		}, []string{"kind"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_store_informer_failures_total",
			Help: "Lists and watches that failed, by reason: unavailable, missing_crd, unauthorized, forbidden, refused.",
		}, []string{"kind", "reason"}),
		expired: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_store_expired_watches_total",
			Help: "Watches that could not go on where they stood, since the API server has forgotten that (410) or is behind it. A list follows, which shows no deletions.",
		}, []string{"kind"}),
		historyBreaks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_store_history_breaks_total",
			Help: "Lists that showed an API server at an earlier state than before, as after a restore.",
		}, []string{"kind"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_store_requests_total",
			Help: "Calls to the API server other than lists and watches, by result: ok, not_found, conflict, refused, unavailable.",
		}, []string{"verb", "kind", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "argomesh_store_request_seconds",
			Help:    "How long the calls took.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15},
		}, []string{"verb"}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.objects, m.bytes, m.failing, m.failures, m.expired, m.historyBreaks,
		m.requests, m.seconds} {
		errs = append(errs, registerer.Register(c))
	}
	return m, errors.Join(errs...)
}

// watched makes the gauges of a kind show before anything happens.
func (m *metrics) watched(kind stream.Kind) {
	m.objects.WithLabelValues(string(kind))
	m.bytes.WithLabelValues(string(kind))
	m.failing.WithLabelValues(string(kind))
	m.expired.WithLabelValues(string(kind))
	m.historyBreaks.WithLabelValues(string(kind))
}

// cached takes note that the cache holds now instead of old; the zero Object is
// none.
func (m *metrics) cached(kind stream.Kind, old, now backends.Object) {
	switch {
	case old.Raw == nil && now.Raw != nil:
		m.objects.WithLabelValues(string(kind)).Inc()
	case old.Raw != nil && now.Raw == nil:
		m.objects.WithLabelValues(string(kind)).Dec()
	}
	m.bytes.WithLabelValues(string(kind)).Add(float64(len(now.Raw) - len(old.Raw)))
}

func (m *metrics) called(verb verb, kind stream.Kind, failure error, took time.Duration) {
	m.requests.WithLabelValues(string(verb), string(kind), resultOf(failure)).Inc()
	m.seconds.WithLabelValues(string(verb)).Observe(took.Seconds())
}

func resultOf(kind error) string {
	switch {
	case kind == nil:
		return "ok"
	case errors.Is(kind, stream.ErrNotFound):
		return "not_found"
	case errors.Is(kind, stream.ErrConflict):
		return "conflict"
	case errors.Is(kind, stream.ErrRefused):
		return "refused"
	default:
		return "unavailable"
	}
}
