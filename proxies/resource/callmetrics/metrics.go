// Package callmetrics are the metrics of live calls, which both ends have.
package callmetrics

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/proxies/resource/pool"
	"github.com/argomesh/argomesh/proxies/resource/secretread"
)

// verbs are the values of label verb; "other" stands for the rest.
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "head", "proxy",
	VerbNone}

// VerbNone is the verb of a call that was refused before it had one.
const (
	VerbNone  = "none"
	verbOther = "other"
)

// Metrics are those of one end. Label side is hub or spoke.
type Metrics struct {
	calls   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	bytes   *prometheus.CounterVec
	// Cut counts answers that were too long, or could not be unpacked.
	Cut prometheus.Counter
	// Masked counts answers about Secrets, by secretread.Results.
	Masked *prometheus.CounterVec
	// Last counts calls for an object of a spoke that is away, Learned what is learned of kinds.
	Last    *prometheus.CounterVec
	Learned *prometheus.CounterVec
}

// ShowDials registers how many connections to the API server of a spoke are being made.
func ShowDials(r prometheus.Registerer, room pool.Dials) error {
	return r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "argomesh_resource_dials",
		Help: "Connections to the spoke's API server that are being made, at most 32. More wait.",
	}, func() float64 { return float64(len(room)) }))
}

// New registers them. side is hub or spoke, and underWay counts the calls that were let in.
func New(r prometheus.Registerer, side string, underWay func() float64) (*Metrics, error) {
	if r == nil {
		return nil, errors.New("metrics are required")
	}
	labels := prometheus.Labels{"side": side}
	m := &Metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name:        "argomesh_resource_calls_total",
			Help:        "Calls to the Kubernetes API of spokes that ended, by verb and class of status: 2xx, or none when the caller left before.",
			ConstLabels: labels,
		}, []string{"verb", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "argomesh_resource_call_seconds",
			Help:    "Time from the begin of a call to its end, without watches, followed logs and upgraded connections.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16), ConstLabels: labels,
		}, []string{"verb"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name:        "argomesh_resource_bytes_total",
			Help:        "Bytes of bodies and of upgraded connections, by direction as the caller sees it: sent or received.",
			ConstLabels: labels,
		}, []string{"direction"}),
	}
	m.Cut = prometheus.NewCounter(prometheus.CounterOpts{
		Name:        "argomesh_resource_answers_cut_total",
		Help:        "Answers of spokes that did not come to their end, since they were longer than any, 16 MiB about one object and 128 MiB else, or could not be unpacked.",
		ConstLabels: labels,
	})
	m.Masked = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name:        "argomesh_resource_masked_total",
		Help:        "Answers about Secrets that were masked, by what became of them: told, too-much, no-room, not-masked when the agent is of a release that does not, or failed.",
		ConstLabels: labels,
	}, []string{"result"})
	for _, result := range secretread.Results() {
		m.Masked.WithLabelValues(result)
	}
	m.Last = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name:        "argomesh_resource_last_objects_total",
		Help:        "Calls for one object of a spoke that is away, by what became of them: served as its Argo CD saw it last, unknown, refused when it is not what was asked for, or busy.",
		ConstLabels: labels,
	}, []string{"result"})
	m.Learned = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name:        "argomesh_resource_learned_kinds_total",
		Help:        "API versions of the objects of Applications whose kinds are to be known while the spoke is away, by what became of that: known before, learned, refused, or failed.",
		ConstLabels: labels,
	}, []string{"result"})
	calls := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "argomesh_resource_calls_in_flight", Help: "Calls under way that were let through.", ConstLabels: labels,
	}, underWay)
	for _, c := range []prometheus.Collector{m.calls, m.seconds, m.bytes, m.Cut, m.Masked, m.Last, m.Learned, calls} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Ended counts a call. A long one has no time that says anything.
func (m *Metrics) Ended(verb string, status int, took time.Duration, long bool, sent, received int64) {
	if !slices.Contains(verbs, verb) {
		verb = verbOther
	}
	code := VerbNone
	if status != 0 {
		code = strconv.Itoa(status/100) + "xx"
	}
	m.calls.WithLabelValues(verb, code).Inc()
	if !long {
		m.seconds.WithLabelValues(verb).Observe(took.Seconds())
	}
	m.bytes.WithLabelValues("sent").Add(float64(sent))
	m.bytes.WithLabelValues("received").Add(float64(received))
}
