package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
)

// Config holds what a Controller needs. Fields without a stated default are
// required.
type Config struct {
	// Client reaches the hub's Kubernetes API. Agents are read and patched,
	// Secrets read, applied and deleted.
	Client dynamic.Interface
	// Namespace is that of the hub's Argo CD.
	Namespace string
	// ProxyURL is where Argo CD reaches the resource proxy: https, host and port,
	// no path.
	ProxyURL string
	// ClusterConfig returns the config of an agent's cluster Secret. It is called on
	// every pass, from several goroutines, and the Secret is written when the result
	// differs from what it holds. Have is the config in the Secret now, nil when there
	// is none of ours: who returns it again leaves the Secret as it is. Nil means a
	// config without credentials.
	ClusterConfig func(ctx context.Context, agent *v1alpha1.Agent, have []byte) (ClusterConfig, error)
	// ConfigChanged returns a channel that is closed when ClusterConfig may return
	// something else than before, for any agent. Nil means never.
	ConfigChanged func() <-chan struct{}
	Sessions      Sessions
	// Mapping is by what the hub maps while Run does. Nil means that it does not say.
	Mapping func() Mapping
	// Children says what the hub makes of the child applications of an agent that are to be
	// shown, by destination. It is called on passes over such Agents, from several goroutines.
	// Nil means that it does not say.
	Children func(context.Context, identity.AgentName) Children
	// Teardown carries out on the hub's objects what the deletion of an Agent asks
	// for, by its mode and policy; see fleet.Cascades. It gets the Agent as a quorum
	// read just showed it: of an orphaning one once its streams have ended, of a
	// cascading one while it is connected or away. It is called again within a few
	// seconds until it returns nothing, which says that it is done; before that it
	// returns what it waits for, to complete the sentence "the Agent is being deleted
	// and waits for ...", such as "the spoke to remove 3 Applications". It does not
	// wait itself: ctx ends after 20 s. What it did must be found done by the next
	// call, also of another process. It is called from several goroutines, for one
	// Agent from one at a time.
	Teardown func(ctx context.Context, agent v1alpha1.Agent) (waits string, err error)
	Metrics  prometheus.Registerer
	Log      zerolog.Logger
}

// ClusterConfig is the config of a cluster Secret.
type ClusterConfig struct {
	// JSON is Argo CD's ClusterConfig, such as Credentials make. It is a secret.
	JSON []byte
	// RenewAfter is how soon it may be another one although nothing changed. Zero means not
	// before something does.
	RenewAfter time.Duration
}

// Controller keeps cluster Secrets and the status of Agents. One at a time runs
// on a hub.
type Controller struct {
	cfg     Config
	metrics *metrics
	synced  atomic.Bool
}

// New checks cfg and registers metrics; it starts nothing.
func New(cfg Config) (*Controller, error) {
	var problems []error
	if cfg.Client == nil {
		problems = append(problems, errors.New("client is missing"))
	}
	if cfg.Namespace == "" {
		problems = append(problems, errors.New("namespace is missing"))
	}
	if cfg.Sessions == nil {
		problems = append(problems, errors.New("sessions are missing"))
	}
	if cfg.Teardown == nil {
		problems = append(problems, errors.New("teardown is missing"))
	}
	if cfg.Metrics == nil {
		problems = append(problems, errors.New("metrics registerer is missing"))
	}
	if err := checkProxyURL(cfg.ProxyURL); err != nil {
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("agent controller: %w", err)
	}
	cfg.ProxyURL = strings.TrimRight(cfg.ProxyURL, "/")
	if cfg.ClusterConfig == nil {
		cfg.ClusterConfig = withoutCredentials
	}
	if cfg.ConfigChanged == nil {
		cfg.ConfigChanged = func() <-chan struct{} { return nil }
	}
	if cfg.Mapping == nil {
		cfg.Mapping = func() Mapping { return Mapping{} }
	}
	if cfg.Children == nil {
		cfg.Children = func(context.Context, identity.AgentName) Children { return Children{} }
	}
	m, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, err
	}
	return &Controller{cfg: cfg, metrics: m}, nil
}

// Synced reports whether Run has read all Agents and cluster Secrets, so that
// every Agent is being looked after. It may be called at any time.
func (c *Controller) Synced() bool { return c.synced.Load() }

// Run keeps the Agents of the namespace until ctx is done, and returns nil then.
// An API server that is away, or does not have the Agent resource yet, is waited
// for. Run is called again in a later term of a Lease, after the one before has returned.
func (c *Controller) Run(ctx context.Context) error {
	return newLoop(c).run(ctx)
}

func checkProxyURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return fmt.Errorf("proxy url %q: %w", text, err)
	}
	if u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" ||
		u.User != nil {
		return fmt.Errorf("proxy url %q: https://host:port is expected", text)
	}
	return nil
}

// withoutCredentials is the config of a cluster that asks for none.
func withoutCredentials(context.Context, *v1alpha1.Agent, []byte) (ClusterConfig, error) {
	content, err := json.Marshal(Credentials{})
	return ClusterConfig{JSON: content}, err
}
