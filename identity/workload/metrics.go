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
	bundleNotAfter    prometheus.Gauge
	jwtBundles        prometheus.Gauge
	jwtBundleUpdates  prometheus.Counter
	tokens            *prometheus.CounterVec
	tokenNotAfter     *prometheus.GaugeVec
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
		bundleNotAfter: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_identity_bundle_not_after_timestamp_seconds",
			Help: "When the first of the X.509 bundles held has no valid root any more, in seconds since 1970. 0 while there is none.",
		}),
		jwtBundles: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_identity_jwt_bundles",
			Help: "Trust domains whose JWT bundle is held. 0 where no method needs them.",
		}),
		jwtBundleUpdates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argomesh_identity_jwt_bundle_updates_total",
			Help: "Sets of JWT bundles received that differ from the one before.",
		}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_identity_jwt_svid_fetches_total",
			Help: "JWT-SVIDs of our own that the Workload API was asked for, by result.",
		}, []string{"result"}),
		tokenNotAfter: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_jwt_svid_not_after_timestamp_seconds",
			Help: "When the JWT-SVID expires by which this process proves itself, in seconds since 1970. No series while there is none.",
		}, []string{"spiffe_id"}),
		handshakeFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_identity_handshake_failures_total",
			Help: "Incoming TLS handshakes that failed, by reason.",
		}, []string{"reason"}),
	}
	for _, reason := range failureReasons {
		m.handshakeFailures.WithLabelValues(string(reason)) // present from the start, so that rates work
	}
	for _, result := range []string{"ok", "failed"} {
		m.tokens.WithLabelValues(result)
	}
	var problems []error
	for _, c := range []prometheus.Collector{
		m.svidNotAfter, m.apiUp, m.svidUpdates, m.bundles, m.bundleUpdates, m.bundleNotAfter,
		m.jwtBundles, m.jwtBundleUpdates, m.tokens, m.tokenNotAfter, m.handshakeFailures,
	} {
		problems = append(problems, r.Register(c))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}
