package redis

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// hubMetrics are those of the hub's end.
type hubMetrics struct {
	connections, subscriptions prometheus.Gauge
	idle                       prometheus.Gauge
	refused, commands, reads   *prometheus.CounterVec
	kept, limits               *prometheus.CounterVec
	seconds, delivery, lastAge prometheus.Histogram
}

func newHubMetrics(r prometheus.Registerer) (*hubMetrics, error) {
	m := &hubMetrics{
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_redis_proxy_connections", Help: "Open connections of callers of the redis proxy.",
		}),
		subscriptions: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_redis_proxy_subscriptions",
			Help: "Channels of agents that callers are subscribed to, each as often as it is.",
		}),
		idle: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_redis_proxy_idle_agent_connections", Help: "Connections to agents that are kept for the next read.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_redis_proxy_refused_total",
			Help: "Connections and subscriptions that were refused or ended, by why: connections and subscriptions are limits, redis that the hub's was away or stood still, agent that its answer broke off, protocol what cannot be read, slow a caller that does not read.",
		}, []string{"reason"}),
		commands: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_redis_proxy_commands_total",
			Help: "Commands of callers: for the hub's redis, for an agent, subscriptions of either, and refused.",
		}, []string{"kind"}),
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_redis_proxy_reads_total",
			Help: "Reads of agents' keys by result: answered, away, timeout, refused, or another format of the cache.",
		}, []string{"result"}),
		kept: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_redis_proxy_kept_total",
			Help: "Last values of spokes by what became of them: kept, failed, or dropped because others waited.",
		}, []string{"result"}),
		limits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_redis_proxy_limits_total",
			Help: "Values of spokes that were refused, by the limit that they exceed once they are unpacked: bytes, ratio, values, elements, depth or encoding.",
		}, []string{"limit"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "argomesh_redis_proxy_read_seconds", Help: "Time until an agent's answer begins.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}),
		delivery: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "argomesh_redis_proxy_delivery_seconds",
			Help:    "Time from a message's arrival from the agent to its being written to a caller.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}),
		lastAge: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "argomesh_redis_proxy_last_value_age_seconds",
			Help:    "Age of the last values that were shown of spokes that were away.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 11),
		}),
	}
	return m, register(r, m.connections, m.subscriptions, m.idle, m.refused, m.commands, m.reads, m.kept, m.limits,
		m.seconds, m.delivery, m.lastAge)
}

// register registers all there are.
func register(r prometheus.Registerer, all ...prometheus.Collector) error {
	if r == nil {
		return errors.New("metrics are required")
	}
	for _, c := range all {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}
