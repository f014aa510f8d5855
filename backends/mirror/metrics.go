package mirror

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/stream"
)

// Metrics are shared by all mirrors of a process.
type Metrics struct {
	events *prometheus.CounterVec
	apply  *prometheus.HistogramVec
	// delayed counts changes of statuses that were held back.
	delayed prometheus.Counter
}

// NewMetrics registers the metrics of package mirror.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_mirror_events_total",
			Help: "Entries sent to, and received from, the other side, by what became of them.",
		}, []string{"direction", "kind", "result"}),
		apply: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "argomesh_mirror_apply_seconds",
			Help:    "Time from a worker taking an event to its being stored.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"kind"}),
		delayed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argomesh_mirror_delayed_total",
			Help: "Changes of a status that were held back, since they moved nothing but the time of the last reconciliation.",
		}),
	}
	for _, c := range []prometheus.Collector{m.events, m.apply, m.delayed} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) sent(c stream.Collection, result string) {
	m.events.WithLabelValues("sent", c.String(), result).Inc()
}

func (m *Metrics) received(c stream.Collection, result string) {
	m.events.WithLabelValues("received", c.String(), result).Inc()
}

func (m *Metrics) applied(c stream.Collection, d time.Duration) {
	m.apply.WithLabelValues(c.String()).Observe(d.Seconds())
}
