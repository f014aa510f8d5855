package workload

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
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
	unusable          prometheus.Counter
	longBundles       prometheus.Counter
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
		unusable: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argomesh_identity_unusable_authorities_total",
			Help: "Authorities of trust bundles that were left out, since their keys are too long to be computed with.",
		}),
		longBundles: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argomesh_identity_long_bundles_total",
			Help: "Trust bundles of other trust domains that were left out, since they have more bytes than one may.",
		}),
	}
	if err := m.register(r); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

// register adds the metrics to r, with the series that are there from the start.
func (m *metrics) register(r prometheus.Registerer) error {
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
		m.unusable, m.longBundles,
	} {
		problems = append(problems, r.Register(c))
	}
	return errors.Join(problems...)
}

// count brings the metrics from one state to the next.
func (m *metrics) count(before, next *current) {
	if !sameSVID(before.svid, next.svid) {
		m.svidNotAfter.Reset()
		if next.svid != nil {
			m.svidNotAfter.WithLabelValues(next.svid.ID.String()).Set(float64(next.svid.Certificates[0].NotAfter.Unix()))
			m.svidUpdates.Inc()
		}
	}
	m.bundles.Set(float64(next.bundles.Len()))
	m.bundleNotAfter.Set(lastsUntil(next.bundles))
	if !slices.EqualFunc(before.bundles.Bundles(), next.bundles.Bundles(), (*x509bundle.Bundle).Equal) {
		m.bundleUpdates.Inc()
	}
}

// lastsUntil returns when the first of the bundles has no valid root any more, in
// seconds since 1970, and 0 when there is none, or one without roots.
func lastsUntil(bundles *x509bundle.Set) float64 {
	var first time.Time
	for i, b := range bundles.Bundles() {
		var last time.Time
		for _, root := range b.X509Authorities() {
			if root.NotAfter.After(last) {
				last = root.NotAfter
			}
		}
		if i == 0 || last.Before(first) {
			first = last
		}
	}
	if first.IsZero() {
		return 0
	}
	return float64(first.Unix())
}

func sameSVID(a, b *x509svid.SVID) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.ID == b.ID && a.Certificates[0].Equal(b.Certificates[0])
}
