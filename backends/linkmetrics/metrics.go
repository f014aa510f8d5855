// Package linkmetrics counts what the links of a process do.
package linkmetrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/stream"
)

// Metrics are shared by all mirrors of a process.
type Metrics struct {
	events *prometheus.CounterVec
	apply  *prometheus.HistogramVec
	// reverts counts what was put back.
	reverts *prometheus.CounterVec
	// Delayed counts changes of statuses that were held back.
	Delayed prometheus.Counter
	// deletions counts those of Applications that the hub's API server told of.
	deletions *prometheus.CounterVec
	// proofs counts Applications that were read before a spoke made them.
	proofs *prometheus.CounterVec
	// waits and returned count what is over budget.
	waits    *prometheus.CounterVec
	returned prometheus.Counter
	// Forgotten counts entries that wait for their AppProject and were too many.
	Forgotten prometheus.Counter
	// lostEnds counts ends of copies that were too many to be remembered.
	lostEnds prometheus.Counter
	// applicationEvents counts events of Applications.
	applicationEvents *prometheus.CounterVec
}

// New registers the metrics of package mirror.
func New(r prometheus.Registerer) (*Metrics, error) {
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
		reverts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_mirror_undone_total",
			Help: "Times that what was applied was changed on the receiving side, and applied again.",
		}, []string{"kind"}),
		Delayed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argomesh_mirror_delayed_total",
			Help: "Changes of a status that were held back, or thinned out, since they moved nothing but the time of the last reconciliation.",
		}),
		deletions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_mirror_deletions_total",
			Help: "Deletions of agents' Applications that the hub's API server told of, by what it then said: confirmed, " +
				"or refuted, unknown, or dropped for their number, which count as absences.",
		}, []string{"result"}),
	}
	m.proofs = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "argomesh_mirror_proofs_total",
		Help: "Applications that the hub's API server was asked about before a spoke made them, since another principal had the agent's link before, " +
			"by what it said: there, gone, or failed, which is asked again.",
	}, []string{"result"})
	m.waits = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "argomesh_mirror_over_budget_total",
		Help: "Times that a write of what a peer sent had to wait, by what was used up: the peer's writes or bytes, " +
			"the bytes of all agents (common), or those of one object, twelve at once and then one in two seconds.",
	}, []string{"budget"})
	m.returned = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "argomesh_mirror_given_back_total",
		Help: "Entries that came while a budget was used up, and that the peer was asked to send again later.",
	})
	m.Forgotten = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "argomesh_mirror_unawaited_total",
		Help: "Entries that were refused until their AppProject comes, and that are not asked for when it does, since 65536 wait already: they come when the hub tries again.",
	})
	m.lostEnds = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "argomesh_mirror_unremembered_ends_total",
		Help: "Copies of Applications that were gone on this spoke while their workloads may run still, and of which the hub is not told, since 16384 are remembered already: its Applications go without the condition.",
	})
	m.applicationEvents = newApplicationEvents()
	for _, c := range []prometheus.Collector{m.applicationEvents, m.Forgotten, m.lostEnds, m.events, m.apply, m.reverts,
		m.Delayed, m.deletions, m.proofs, m.waits, m.returned} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// newApplicationEvents counts Events about Applications.
func newApplicationEvents() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "argomesh_mirror_application_events_total",
		Help: "Events in which a spoke's Argo CD speaks of Applications, by what became of them: sent by the spoke, shown on the hub or failed there; " +
			"merged with one that waits, which keeps the count; or dropped, of Applications that the hub does not show as the agent's (unknown), " +
			"for lack of room (crowded), since nothing of a budget is to spare (over_budget), or with the connection that had them, which ended or was replaced (cut_off).",
	}, []string{"result"})
}

// Sent counts an entry that the peer answered.
func (m *Metrics) Sent(c stream.Collection, result string) {
	m.events.WithLabelValues("sent", c.String(), result).Inc()
}

// Received counts an entry of the peer by what became of it.
func (m *Metrics) Received(c stream.Collection, result string) {
	m.events.WithLabelValues("received", c.String(), result).Inc()
}

// Reverted counts what was put back of an entry.
func (m *Metrics) Reverted(c stream.Collection) { m.reverts.WithLabelValues(c.String()).Inc() }

// Proven counts an Application that was read before a spoke made it.
func (m *Metrics) Proven(result string) { m.proofs.WithLabelValues(result).Inc() }

// Deleted counts a deletion that the API server told of, by what it then said.
func (m *Metrics) Deleted(result string) { m.deletions.WithLabelValues(result).Inc() }

// Applied notes how long an event took to be stored.
func (m *Metrics) Applied(c stream.Collection, d time.Duration) {
	m.apply.WithLabelValues(c.String()).Observe(d.Seconds())
}

// Waited counts what waits for a budget; for its object, where none was exceeded.
func (m *Metrics) Waited(over budget.Over) {
	label := overObject
	if over != budget.OverNothing {
		label = over.String()
	}
	m.waits.WithLabelValues(label).Inc()
}

// overObject is the label of what waits since its object was written too often.
const overObject = "object"

// Unremembered counts an entry that waits for its AppProject and is not remembered.
func (m *Metrics) Unremembered() { m.Forgotten.Inc() }

// LostEnd counts an end of a copy that is not remembered.
func (m *Metrics) LostEnd() { m.lostEnds.Inc() }

// Returned counts entries that the peer is to send again later.
func (m *Metrics) Returned(entries int) { m.returned.Add(float64(entries)) }

// Event counts an event of an Application by what became of it.
func (m *Metrics) Event(result string) { m.applicationEvents.WithLabelValues(result).Inc() }
