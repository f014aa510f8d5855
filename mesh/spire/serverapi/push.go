package serverapi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/argomesh/argomesh/mesh/spire"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"

	"github.com/argomesh/argomesh/internal/diff"
)

// defaultPushEvery is how often a Pusher looks: a mounted ConfigMap changes about as
// slowly.
const defaultPushEvery = time.Minute

// PlanPush returns what has the server hold each of the desired bundles, as
// [PlanBundles] does, for when no one watches: it never insists. A bundle of which the
// server has a newer one is kept, since the server polls too. Refused, each by itself,
// is what may bring keys back that were taken away, or takes all: other keys without a
// sequence number, or under the number that the server has, and no X.509 keys.
func PlanPush(desired, observed []*spiffebundle.Bundle) []diff.Change[*spiffebundle.Bundle] {
	plan := spire.PlanBundles(desired, observed, false)
	for i := range plan {
		change := &plan[i]
		switch change.Action {
		case diff.Refuse:
			change.Action, change.Reason = diff.Keep, "the server has a newer one"
		case diff.Create, diff.Update:
			if reason := unsafe(change.Want, change.Have); reason != "" {
				change.Action, change.Reason = diff.Refuse, reason
			}
		}
	}
	diff.Sort(plan)
	return plan
}

// unsafe says why want must not take the place of have, which may be nil.
func unsafe(want, have *spiffebundle.Bundle) string {
	if len(want.X509Authorities()) == 0 {
		return "it has no X.509 key, so no workload of the trust domain could be trusted: to end the trust, use agentctl identity federate --delete-bundle"
	}
	if have == nil {
		return ""
	}
	number, _ := want.SequenceNumber()
	there, _ := have.SequenceNumber()
	switch number {
	case 0:
		return "it has no spiffe_sequence, so nothing tells whether it is older than the server's: take the document from the partner's bundle endpoint, or spire-server bundle show -format spiffe"
	case there:
		return fmt.Sprintf("the server has other keys under the same spiffe_sequence %d: find out which of the two is the partner's, and set it with agentctl identity federate --push-bundle --force", number)
	}
	return ""
}

// PusherConfig holds what a Pusher needs. Fields without a stated default are required.
type PusherConfig struct {
	// Connect returns a client of the server. It is called once, and again as long as
	// it fails.
	Connect func(context.Context) (*Client, error)
	// Desired returns the bundles of other trust domains that the server is to have,
	// and what is wrong with those that it cannot return.
	Desired func() ([]*spiffebundle.Bundle, error)
	// Every is how often to look. Zero means a minute.
	Every   time.Duration
	Metrics prometheus.Registerer
	Log     zerolog.Logger
}

// Pusher keeps the bundles of other trust domains at a SPIRE server up to date, as
// [PlanPush] says. Its identity must be an administrator of the server.
type Pusher struct {
	cfg     PusherConfig
	client  *Client // of Run
	bundles *prometheus.GaugeVec
	pushes  *prometheus.CounterVec

	mu      sync.Mutex // guards problem
	problem error
}

// The states of a bundle, labels of a metric.
const (
	bundleCurrent = "current" // the server has its keys
	bundleOlder   = "older"   // the server has newer ones
	bundleFailed  = "failed"  // refused by us or by the server
)

// NewPusher checks cfg, and contacts no one.
func NewPusher(cfg PusherConfig) (*Pusher, error) {
	if cfg.Connect == nil || cfg.Desired == nil || cfg.Metrics == nil || cfg.Every < 0 {
		return nil, fmt.Errorf("spire pusher: connect, desired and metrics are required, and every must not be negative: %w",
			spire.ErrInvalid)
	}
	if cfg.Every == 0 {
		cfg.Every = defaultPushEvery
	}
	p := &Pusher{
		cfg: cfg,
		bundles: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_spire_bundles",
			Help: "Bundles of other trust domains that are pushed to the SPIRE server, by how the server has them: current, older (than the server's), failed.",
		}, []string{"state"}),
		pushes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_spire_bundle_pushes_total",
			Help: "Bundles of other trust domains that were pushed to the SPIRE server, and passes that failed, by result.",
		}, []string{"result"}),
	}
	p.show(nil)
	for _, result := range []string{"pushed", "failed"} {
		p.pushes.WithLabelValues(result) // present from the start, so that rates work
	}
	return p, errors.Join(cfg.Metrics.Register(p.bundles), cfg.Metrics.Register(p.pushes))
}

// Degraded returns what the last pass could not do; nil when all is well, and while Run
// does not run.
func (p *Pusher) Degraded() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.problem
}

// Run looks at once and then every so often, until ctx is done, and returns nil. What
// fails is logged when it changes, and tried again. It may be called again after it has
// returned.
func (p *Pusher) Run(ctx context.Context) error {
	again := time.NewTicker(p.cfg.Every)
	defer again.Stop()
	defer func() {
		if p.client != nil {
			_ = p.client.Close() // nothing is under way
			p.client = nil
		}
		p.show(nil)
		p.setError(nil)
	}()
	for {
		if err := p.pass(ctx); ctx.Err() == nil {
			p.setError(err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// setError remembers what a pass came to, and logs what is new.
func (p *Pusher) setError(err error) {
	p.mu.Lock()
	before := p.problem
	p.problem = err
	p.mu.Unlock()
	switch {
	case err != nil:
		p.pushes.WithLabelValues("failed").Inc()
		if before == nil || before.Error() != err.Error() {
			p.cfg.Log.Warn().Err(err).Msg("bundles of other trust domains are not all at the SPIRE server")
		}
	case before != nil:
		p.cfg.Log.Info().Msg("bundles of other trust domains are at the SPIRE server again")
	}
}

// pass pushes what has to be pushed now.
func (p *Pusher) pass(ctx context.Context) error {
	desired, problem := p.cfg.Desired()
	if p.client == nil {
		client, err := p.cfg.Connect(ctx)
		if err != nil {
			return errors.Join(problem, err)
		}
		p.client = client
	}
	observed, err := p.client.FederatedBundles(ctx)
	if err != nil {
		return errors.Join(problem, err)
	}
	var (
		plan   = PlanPush(desired, observed)
		states = map[string]int{}
		safe   = make([]diff.Change[*spiffebundle.Bundle], 0, len(plan))
	)
	for _, change := range plan {
		switch {
		case change.Action == diff.Refuse:
			problem = errors.Join(problem, fmt.Errorf("%s: %w: %s", change.Name, spire.ErrRefused, change.Reason))
			states[bundleFailed]++
			continue
		case change.Action == diff.Keep && change.Reason != "":
			states[bundleOlder]++
		case change.Action == diff.Keep:
			states[bundleCurrent]++
		}
		safe = append(safe, change)
	}
	pushed := 0
	err = p.client.ApplyBundles(ctx, safe, func(change diff.Change[*spiffebundle.Bundle]) {
		pushed++
		p.pushes.WithLabelValues("pushed").Inc()
		p.cfg.Log.Info().Stringer("trust_domain", change.Want.TrustDomain()).Str("keys", spire.DescribeKeys(change.Want)).
			Msg("bundle pushed to the SPIRE server")
	})
	states[bundleCurrent] += pushed
	states[bundleFailed] += len(safe) - pushed - len(withAction(safe, diff.Keep))
	p.show(states)
	return errors.Join(problem, err)
}

// show sets the gauges; nil stands for no bundles.
func (p *Pusher) show(states map[string]int) {
	for _, state := range []string{bundleCurrent, bundleOlder, bundleFailed} {
		p.bundles.WithLabelValues(state).Set(float64(states[state]))
	}
}
