package workload

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of one Source.
type metrics struct {
	svidNotAfter      *prometheus.GaugeVec
	apiUp             prometheus.Gauge
	svidUpdates       prometheus.Counter
	bundles           prometheus.Gauge
	bundleUpdates     prometheus.Counter
	handshakeFailures *prometheus.CounterVec
}

// newMetrics registers them with r.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		svidNotAfter: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_svid_not_after_timestamp_seconds",
			Help: "When the X.509-SVID in use expires, in seconds since 1970. No series while there is none.",
		}, []string{"spiffe_id"}),
		apiUp: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_identity_workload_api_up",
			Help: "1 while the Workload API answers with an identity for this process, 0 otherwise.",
		}),
		svidUpdates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argomesh_identity_svid_updates_total",
			Help: "X.509-SVIDs received that differ from the one before.",
		}),
		bundles: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_identity_bundles",
			Help: "Trust domains whose X.509 bundle is held.",
		}),
		bundleUpdates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argomesh_identity_bundle_updates_total",
			Help: "Sets of X.509 bundles received that differ from the one before.",
		}),
		handshakeFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_identity_handshake_failures_total",
			Help: "Incoming TLS handshakes that failed, by reason.",
		}, []string{"reason"}),
	}
	for _, reason := range failureReasons {
		m.handshakeFailures.WithLabelValues(string(reason)) // present from the start, so that rates work
	}
	var problems []error
	for _, c := range []prometheus.Collector{m.svidNotAfter, m.apiUp, m.svidUpdates, m.bundles, m.bundleUpdates, m.handshakeFailures} {
		problems = append(problems, r.Register(c))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}
