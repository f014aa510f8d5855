package mirror

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
	// undoings counts what was put back.
	undoings *prometheus.CounterVec
	// delayed counts changes of statuses that were held back.
	delayed prometheus.Counter
	// deletions counts those of Applications that the hub's API server told of.
	deletions *prometheus.CounterVec
	// proofs counts Applications that were read before a spoke made them.
	proofs *prometheus.CounterVec
	// waits and returned count what is over budget.
	waits    *prometheus.CounterVec
	returned prometheus.Counter
	// forgotten counts entries that wait for their AppProject and were too many.
	forgotten prometheus.Counter
	// lostEnds counts ends of copies that were too many to be remembered.
	lostEnds prometheus.Counter
	// tidings counts events of Applications.
	tidings *prometheus.CounterVec
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
		undoings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_mirror_undone_total",
			Help: "Times that somebody on the receiving side had changed what was applied, and it was applied again.",
		}, []string{"kind"}),
		delayed: prometheus.NewCounter(prometheus.CounterOpts{
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
	m.forgotten = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "argomesh_mirror_unawaited_total",
		Help: "Entries that were refused until their AppProject comes, and that are not asked for when it does, since 65536 wait already: they come when the hub tries again.",
	})
	m.lostEnds = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "argomesh_mirror_unremembered_ends_total",
		Help: "Copies of Applications that were gone on this spoke while their workloads may run still, and of which the hub is not told, since 16384 are remembered already: its Applications go without the condition.",
	})
	m.tidings = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "argomesh_mirror_application_events_total",
		Help: "Events in which a spoke's Argo CD speaks of Applications, by what became of them: sent by the spoke, shown on the hub or failed there; " +
			"merged with one that waits, which keeps the count; or dropped, of Applications that the hub does not show as the agent's (unknown), " +
			"for lack of room (crowded), since nothing of a budget is to spare (over_budget), or with the connection that had them, which ended or was replaced (cut_off).",
	}, []string{"result"})
	for _, c := range []prometheus.Collector{m.tidings, m.forgotten, m.lostEnds, m.events, m.apply, m.undoings, m.delayed, m.deletions, m.proofs, m.waits, m.returned} {
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

func (m *Metrics) undone(c stream.Collection) { m.undoings.WithLabelValues(c.String()).Inc() }

func (m *Metrics) proven(result string) { m.proofs.WithLabelValues(result).Inc() }

func (m *Metrics) deleted(result string) { m.deletions.WithLabelValues(result).Inc() }

func (m *Metrics) applied(c stream.Collection, d time.Duration) {
	m.apply.WithLabelValues(c.String()).Observe(d.Seconds())
}

// waited counts what waits for a budget; for its object, where none was exceeded.
func (m *Metrics) waited(over budget.Over) {
	label := overObject
	if over != budget.OverNothing {
		label = over.String()
	}
	m.waits.WithLabelValues(label).Inc()
}

// overObject is the label of what waits since its object was written too often.
const overObject = "object"

func (m *Metrics) unremembered() { m.forgotten.Inc() }

func (m *Metrics) lostEnd() { m.lostEnds.Inc() }

func (m *Metrics) givenBack(entries int) { m.returned.Add(float64(entries)) }

func (m *Metrics) event(result string) { m.tidings.WithLabelValues(result).Inc() }
