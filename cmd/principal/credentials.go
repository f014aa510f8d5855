package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/cmd/internal/start"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/proxies/token"
)

// liveCredentials are the credentials of the resource proxy as main wires them.
type liveCredentials struct {
	// keys sign and check tokens; nil when they are off.
	keys    *token.Keys
	config  func(context.Context, *v1alpha1.Agent, []byte) (controller.ClusterConfig, error)
	changed func() <-chan struct{}
	run     func(context.Context) error // in every replica
	rotate  func(context.Context) error // under the Lease
}

// newLiveCredentials starts nothing. Off, cluster Secrets are as they are without a
// resource proxy. acknowledged is token.Config.Acknowledged.
func newLiveCredentials(cfg principalconfig.Config, base *start.Base, source *workload.Source, state *hubState, acknowledged func(keyID string) bool) (liveCredentials, error) {
	settings := cfg.ResourceProxy.Credentials
	if !settings.Enabled {
		nothing := func(context.Context) error { return nil }
		return liveCredentials{run: nothing, rotate: nothing}, nil
	}
	client, err := corev1.NewForConfig(base.REST)
	if err != nil {
		return liveCredentials{}, fmt.Errorf("kubernetes client: %w", err)
	}
	keys, err := token.New(token.Config{
		Secrets: client.Secrets(cfg.Namespace), Namespace: cfg.Namespace,
		HubUID: func(ctx context.Context) (string, bool) {
			kept, known := state.wait(ctx)
			return kept.UID, known
		},
		Acknowledged: acknowledged,
		Life:         settings.TokenLife, KeyLife: settings.KeyLife, Metrics: base.Metrics, Log: base.Log,
	})
	if err != nil {
		return liveCredentials{}, err
	}
	authorities := authorities{read: func() ([]byte, error) { return nil, nil }}
	switch {
	case settings.CAFile != "":
		authorities.read = func() ([]byte, error) { return readAuthorities(settings.CAFile) }
		if _, err := authorities.read(); err != nil { // what is mounted is there before us
			return liveCredentials{}, config.Invalid("resource_proxy.credentials.ca_file", "%v: name a readable PEM file", err)
		}
	case settings.CABundle:
		authorities.read = func() ([]byte, error) { return ownBundle(source) }
		authorities.updated, authorities.ready = source.Updated, source.WaitReady
	}
	c := &clusterCredentials{
		keys: keys, life: settings.TokenLife, authorities: authorities, log: base.Log,
		issued: map[identity.AgentName]token.Signed{}, renewed: make(chan struct{}),
	}
	return liveCredentials{
		keys: keys, config: c.config, changed: c.changed, rotate: keys.Rotate,
		run: func(ctx context.Context) error {
			g, ctx := errgroup.WithContext(ctx)
			g.Go(func() error { return keys.Run(ctx) })
			g.Go(func() error { return c.Run(ctx) })
			return g.Wait()
		},
	}, nil
}

// authorities are those by which Argo CD knows the resource proxy.
type authorities struct {
	// read returns PEM, nil for those of the system.
	read func() ([]byte, error)
	// updated returns a channel that is closed when they change; nil when nobody tells.
	updated func() <-chan struct{}
	// ready waits until they can be read, or ctx is done; nil when they can.
	ready func(ctx context.Context) error
}

// authoritiesInterval is how often authorities are read again.
const authoritiesInterval = 10 * time.Second

// maxAuthorities is the largest file of authorities, in bytes: a Secret holds a
// megabyte in all.
const maxAuthorities = 256 << 10

func readAuthorities(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	switch {
	case err != nil:
		return nil, err
	case len(content) > maxAuthorities:
		return nil, fmt.Errorf("%s has %d bytes, more than %d", path, len(content), maxAuthorities)
	case !x509.NewCertPool().AppendCertsFromPEM(content):
		return nil, fmt.Errorf("%s has no certificate", path)
	}
	return content, nil
}

// ownBundle returns the authorities of our own trust domain, those that are about to
// be replaced included.
func ownBundle(source *workload.Source) ([]byte, error) {
	svid, err := source.GetX509SVID()
	if err != nil {
		return nil, err
	}
	bundle, err := source.GetX509BundleForTrustDomain(svid.ID.TrustDomain())
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, authority := range bundle.X509Authorities() {
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: authority.Raw}); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// unusable returns what a person has to mend of the signing keys, and how; nil while
// nothing is wrong.
func (c liveCredentials) unusable() error {
	if c.keys == nil {
		return nil
	}
	if err := c.keys.Ready(); errors.Is(err, token.ErrUnusable) {
		return fmt.Errorf("%w: restore it, or delete it to begin with new keys, which ends every token; until then only keys that were read before count", err)
	}
	return nil
}

// tokenKeys are token.Keys as far as they are used here.
type tokenKeys interface {
	Sign(agent identity.AgentName, holder token.Holder) (token.Signed, error)
	Inspect(agent identity.AgentName, holder token.Holder, text string) (token.Signed, error)
	Changed() <-chan struct{}
}

// clusterCredentials make the config of cluster Secrets.
type clusterCredentials struct {
	keys        tokenKeys
	life        time.Duration // of a token
	authorities authorities
	log         zerolog.Logger

	mu      sync.Mutex                          // guards what follows
	ca      []byte                              // PEM
	known   bool                                // ca was read
	issued  map[identity.AgentName]token.Signed // the last token of each agent, until it expires
	renewed chan struct{}                       // closed when config may return something else
	failed  string                              // why ca cannot be read, said once
}

// config is controller.Config.ClusterConfig. A token in the Secret stays until it is
// due, or as long as nobody knows whether it is valid; so does everything while the
// authorities are not known yet.
func (c *clusterCredentials) config(_ context.Context, of *v1alpha1.Agent, have []byte) (controller.ClusterConfig, error) {
	agent, err := identity.ParseAgentName(of.Name)
	if err != nil {
		return controller.ClusterConfig{}, err
	}
	c.mu.Lock()
	ca, known, issued := c.ca, c.known, c.issued[agent]
	c.mu.Unlock()
	if !known && have != nil {
		return controller.ClusterConfig{JSON: have}, nil
	}
	var held controller.Credentials
	if err := json.Unmarshal(have, &held); err != nil {
		held = controller.Credentials{} // somebody's edit, or nothing: made anew
	}
	text, again, err := c.token(agent, holderOf(of), held.BearerToken, issued.Text)
	if err != nil {
		return controller.ClusterConfig{}, err
	}
	content, err := json.Marshal(controller.Credentials{BearerToken: text, CA: ca})
	return controller.ClusterConfig{JSON: content, Again: again}, err
}

// holderOf is whose the tokens of an Agent are.
func holderOf(agent *v1alpha1.Agent) token.Holder {
	return token.Holder{UID: string(agent.UID), Generation: agent.Spec.TokenGeneration, Created: agent.CreationTimestamp.Time}
}

// token returns the token that a Secret with held is to have, and how soon it is to
// be replaced. The one that was issued last restores what somebody changed.
func (c *clusterCredentials) token(agent identity.AgentName, holder token.Holder, held, issued string) (text string, again time.Duration, err error) {
	for _, candidate := range []string{held, issued} {
		if candidate == "" {
			continue
		}
		signed, err := c.keys.Inspect(agent, holder, candidate)
		if errors.Is(err, token.ErrNoKey) {
			return held, 0, nil // Changed tells when that is another
		}
		if left := time.Until(signed.Renew); err == nil && left > 0 && signed.Expiry.Sub(signed.IssuedAt) <= c.life {
			return candidate, left, nil
		}
	}
	signed, err := c.keys.Sign(agent, holder)
	if errors.Is(err, token.ErrNoKey) {
		return held, 0, nil
	}
	if err != nil {
		return "", 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.issued[agent] = signed
	return signed.Text, max(time.Until(signed.Renew), time.Second), nil
}

// changed is controller.Config.ConfigChanged.
func (c *clusterCredentials) changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.renewed
}

// Run follows keys and authorities until ctx is done.
func (c *clusterCredentials) Run(ctx context.Context) error {
	if c.authorities.ready != nil && c.authorities.ready(ctx) != nil {
		return nil // ctx is done
	}
	again := time.NewTicker(authoritiesInterval)
	defer again.Stop()
	keys := c.keys.Changed()
	for {
		var updated <-chan struct{}
		if c.authorities.updated != nil {
			updated = c.authorities.updated()
		}
		c.look()
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
			c.forget(time.Now())
		case <-updated:
		case <-keys:
			keys = c.keys.Changed() // not before: a change beside another event would go untold
			c.tell()
		}
	}
}

// look reads the authorities. What cannot be read leaves those that are known.
func (c *clusterCredentials) look() {
	ca, err := c.authorities.read()
	c.mu.Lock()
	changed := err == nil && (!c.known || !bytes.Equal(ca, c.ca))
	if err == nil {
		c.ca, c.known = ca, true
	}
	said := c.failed
	if c.failed = ""; err != nil {
		c.failed = err.Error()
	}
	now := c.failed
	c.mu.Unlock()
	if changed {
		c.tell()
	}
	if now != "" && now != said {
		c.log.Warn().Err(err).Msg("authorities of the resource proxy cannot be read, trying again; known ones stay in the cluster secrets")
	}
}

// forget drops tokens that have expired, of agents that are gone.
func (c *clusterCredentials) forget(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.issued, func(_ identity.AgentName, signed token.Signed) bool { return now.After(signed.Expiry) })
}

// tell wakes who waits for a change.
func (c *clusterCredentials) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.renewed)
	c.renewed = make(chan struct{})
}
