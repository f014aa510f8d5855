package agentwatch

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// Gauges is a prometheus.Collector of what the status of each Agent says, so that one
// agent can be watched, and alerted on. There are as many series of each as there are Agents.
// Every principal of a hub serves the same.
type Gauges struct {
	all func(yield func(v1alpha1.Agent))

	mu     sync.Mutex // of one Collect at a time
	gauges []agentGauge
}

// agentGauge is one of them. It has no series for an Agent of which value is false.
type agentGauge struct {
	vec   *prometheus.GaugeVec
	value func(v1alpha1.Agent) (float64, bool)
}

// NewGauges returns the metrics of the Agents that all yields.
func NewGauges(all func(yield func(v1alpha1.Agent))) *Gauges {
	return &Gauges{all: all, gauges: []agentGauge{
		{prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_agent_connected",
			Help: "1 while the agent has a live sync stream with a principal of the hub, 0 otherwise.",
		}, []string{"agent"}), func(a v1alpha1.Agent) (float64, bool) { return truth(a.Status.Connected), true }},
		{prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_agent_suspended",
			Help: "1 while the hub refuses the agent since spec.suspended says so, 0 otherwise.",
		}, []string{"agent"}), func(a v1alpha1.Agent) (float64, bool) { return truth(a.Spec.Suspended), true }},
		{prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_agent_since_timestamp_seconds",
			Help: "When argomesh_agent_connected took its value, in seconds since 1970. No series for an agent that was never there.",
		}, []string{"agent"}), func(a v1alpha1.Agent) (float64, bool) { return moment(a.Status.Since) }},
		{prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_agent_observed_timestamp_seconds",
			Help: "When the agent was last seen connected, in seconds since 1970, written at most once a minute. No series for an agent that was never there.",
		}, []string{"agent"}), func(a v1alpha1.Agent) (float64, bool) { return moment(a.Status.ObservedAt) }},
		{prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_agent_svid_not_after_timestamp_seconds",
			Help: "When the newest SVID that the agent proved expires, in seconds since 1970. No series for an agent that was never there.",
		}, []string{"agent"}), func(a v1alpha1.Agent) (float64, bool) { return moment(a.Status.SVIDExpiry) }},
		{prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_agent_applications",
			Help: "Applications of the agent that hub and spoke share.",
		}, []string{"agent"}), func(a v1alpha1.Agent) (float64, bool) { return float64(a.Status.Counts.Applications), true }},
		{prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_agent_parked_objects",
			Help: "Objects of the agent that are not applied; status.parked names them.",
		}, []string{"agent"}), func(a v1alpha1.Agent) (float64, bool) { return float64(a.Status.Counts.Parked), true }},
		{prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_agent_delayed_objects",
			Help: "Objects of the agent that wait to be written since a budget is used up.",
		}, []string{"agent"}), func(a v1alpha1.Agent) (float64, bool) { return float64(a.Status.Counts.Delayed), true }},
		{prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_agent_held_deletions",
			Help: "Deletions of the agent that wait for a person.",
		}, []string{"agent"}), func(a v1alpha1.Agent) (float64, bool) {
			if a.Status.DeletionsHeld == nil {
				return 0, true
			}
			return float64(a.Status.DeletionsHeld.Total), true
		}},
	}}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func moment(at *metav1.Time) (float64, bool) {
	if at.IsZero() {
		return 0, false
	}
	return float64(at.Unix()), true
}

// Describe implements prometheus.Collector.
func (g *Gauges) Describe(descs chan<- *prometheus.Desc) {
	for _, gauge := range g.gauges {
		gauge.vec.Describe(descs)
	}
}

// Collect implements prometheus.Collector.
func (g *Gauges) Collect(metrics chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, gauge := range g.gauges {
		gauge.vec.Reset() // of Agents that went
	}
	g.all(func(a v1alpha1.Agent) {
		for _, gauge := range g.gauges {
			if value, known := gauge.value(a); known {
				gauge.vec.WithLabelValues(a.Name).Set(value)
			}
		}
	})
	for _, gauge := range g.gauges {
		gauge.vec.Collect(metrics)
	}
}
