package token

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	usable   prometheus.Gauge
	since    prometheus.Gauge
	signed   prometheus.Counter
	verified *prometheus.CounterVec
	changes  *prometheus.CounterVec
}

// Values of the label result.
const (
	resultOK      = "ok"
	resultRefused = "refused"
)

func newMetrics(registerer prometheus.Registerer, remembered func() float64) (*metrics, error) {
	m := &metrics{
		usable: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_token_keys_usable",
			Help: "1 when the Secret with the signing keys can be used and one of them signs, 0 otherwise.",
		}),
		since: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "argomesh_token_signing_key_since_timestamp_seconds",
			Help: "When the key that signs began to; 0 while none does.",
		}),
		signed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argomesh_token_signed_total",
			Help: "Tokens signed by this process.",
		}),
		verified: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_token_verified_total",
			Help: "Tokens of calls that were checked, by result: ok or refused.",
		}, []string{"result"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_token_key_changes_total",
			Help: "Changes of the signing keys written by this process: created, promoted, retired, extended, adjusted.",
		}, []string{"change"}),
	}
	kept := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "argomesh_token_remembered",
		Help: "Good tokens whose signature is not looked at again, until the keys are read next.",
	}, remembered)
	for _, c := range []prometheus.Collector{m.usable, m.since, m.signed, m.verified, m.changes, kept} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of token keys: %w", err)
		}
	}
	return m, nil
}

// show sets what is known of the keys.
func (m *metrics) show(state State, problem error) {
	usable, since := 0.0, 0.0
	if state.Current != nil {
		since = float64(state.Current.SignsSince.Unix())
		if problem == nil {
			usable = 1
		}
	}
	m.usable.Set(usable)
	m.since.Set(since)
}
