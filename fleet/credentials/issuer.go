// Package credentials issues what Argo CD reaches the resource proxy with, for the cluster
// Secrets of agents.
package credentials

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

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/internal/notify"
	"github.com/argomesh/argomesh/proxies/token"
)

// Authorities are those by which Argo CD knows the resource proxy.
type Authorities struct {
	// Read returns PEM, nil for those of the system.
	Read func() ([]byte, error)
	// Updated returns a channel that is closed when they change; nil when no one tells.
	Updated func() <-chan struct{}
	// Ready waits until they can be read, or ctx is done; nil when they can.
	Ready func(ctx context.Context) error
}

// authoritiesInterval is how often authorities are read again.
const authoritiesInterval = 10 * time.Second

// maxAuthorities is the largest file of authorities, in bytes: a Secret holds a
// megabyte in all.
const maxAuthorities = 256 << 10

// ReadAuthorities reads a PEM file. A file without a certificate, or one that is too large for
// a Secret, is an error.
func ReadAuthorities(path string) ([]byte, error) {
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

// OwnBundle returns the authorities of our own trust domain, those that are about to
// be replaced included.
func OwnBundle(source *workload.Source) ([]byte, error) {
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

// tokenKeys are token.Keys as far as they are used here.
type tokenKeys interface {
	Sign(agent identity.AgentName, holder token.Holder) (token.Signed, error)
	SignFor(agent identity.AgentName, holder token.Holder, person string, life time.Duration) (token.Signed, error)
	Inspect(agent identity.AgentName, holder token.Holder, text string) (token.Signed, error)
	Changed() <-chan struct{}
}

// Issuer make the config of cluster Secrets.
type Issuer struct {
	keys        tokenKeys
	lifetime    time.Duration // of a token
	authorities Authorities
	log         zerolog.Logger

	mu      sync.Mutex                          // guards what follows
	ca      []byte                              // PEM
	known   bool                                // ca was read
	issued  map[identity.AgentName]token.Signed // the last token of each agent, until it expires
	renewed notify.Broadcast                    // closed when config may return something else
	failed  string                              // why ca cannot be read, logged once
}

// New makes tokens of at most that life.
func New(keys tokenKeys, life time.Duration, from Authorities, log zerolog.Logger) *Issuer {
	return &Issuer{
		keys: keys, lifetime: life, authorities: from, log: log, issued: map[identity.AgentName]token.Signed{},
	}
}

// Config is controller.Config.ClusterConfig. A token in the Secret stays until it is
// due, or as long as no one knows whether it is valid; so does everything while the
// authorities are not known yet.
func (c *Issuer) Config(_ context.Context, of *v1alpha1.Agent, have []byte) (controller.ClusterConfig, error) {
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
	var stored controller.Credentials
	if err := json.Unmarshal(have, &stored); err != nil {
		stored = controller.Credentials{} // someone's edit, or nothing: made again
	}
	text, renewAfter, err := c.token(agent, holderOf(of), stored.BearerToken, issued.Text)
	if err != nil {
		return controller.ClusterConfig{}, err
	}
	content, err := json.Marshal(controller.Credentials{BearerToken: text, CA: ca})
	return controller.ClusterConfig{JSON: content, RenewAfter: renewAfter}, err
}

// SignFor makes out a token of an Agent to a person; see token.Keys.SignFor.
func (c *Issuer) SignFor(of *v1alpha1.Agent, person string, life time.Duration) (token.Signed, error) {
	agent, err := identity.ParseAgentName(of.Name)
	if err != nil {
		return token.Signed{}, err
	}
	return c.keys.SignFor(agent, holderOf(of), person, life)
}

// Authorities returns those of the resource proxy's certificate, in PEM, nil for those of the
// system; false while they are not known.
func (c *Issuer) Authorities() (ca []byte, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ca, c.known
}

// holderOf is whose the tokens of an Agent are.
func holderOf(agent *v1alpha1.Agent) token.Holder {
	return token.Holder{UID: string(agent.UID), Generation: agent.Spec.TokenGeneration,
		Created: agent.CreationTimestamp.Time}
}

// token returns the token that a Secret with stored is to have, and how soon it is to
// be replaced. The one that was issued last restores what someone changed.
func (c *Issuer) token(agent identity.AgentName, holder token.Holder, stored,
	issued string) (text string, renewAfter time.Duration, err error) {
	for _, candidate := range []string{stored, issued} {
		if candidate == "" {
			continue
		}
		signed, err := c.keys.Inspect(agent, holder, candidate)
		if errors.Is(err, token.ErrNoKey) {
			return stored, 0, nil // Changed tells when that is another
		}
		left := time.Until(signed.Renew)
		if err == nil && left > 0 && signed.Expiry.Sub(signed.IssuedAt) <= c.lifetime {
			return candidate, left, nil
		}
	}
	signed, err := c.keys.Sign(agent, holder)
	if errors.Is(err, token.ErrNoKey) {
		return stored, 0, nil
	}
	if err != nil {
		return "", 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.issued[agent] = signed
	return signed.Text, max(time.Until(signed.Renew), time.Second), nil
}

// Changed is controller.Config.ConfigChanged.
func (c *Issuer) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.renewed.Next()
}

// Run follows keys and authorities until ctx is done.
func (c *Issuer) Run(ctx context.Context) error {
	if c.authorities.Ready != nil && c.authorities.Ready(ctx) != nil {
		return nil // ctx is done
	}
	tick := time.NewTicker(authoritiesInterval)
	defer tick.Stop()
	keys := c.keys.Changed()
	for {
		var updated <-chan struct{}
		if c.authorities.Updated != nil {
			updated = c.authorities.Updated()
		}
		c.readAuthorities()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			c.dropExpired(time.Now())
		case <-updated:
		case <-keys:
			keys = c.keys.Changed() // not before: a change beside another event would be missed
			c.notify()
		}
	}
}

// readAuthorities reads the authorities. What cannot be read leaves those that are known.
func (c *Issuer) readAuthorities() {
	ca, err := c.authorities.Read()
	c.mu.Lock()
	changed := err == nil && (!c.known || !bytes.Equal(ca, c.ca))
	if err == nil {
		c.ca, c.known = ca, true
	}
	logged := c.failed
	if c.failed = ""; err != nil {
		c.failed = err.Error()
	}
	now := c.failed
	c.mu.Unlock()
	if changed {
		c.notify()
	}
	if now != "" && now != logged {
		c.log.Warn().Err(err).
			Msg("cannot read the authorities of the resource proxy, retrying; known ones stay in the cluster Secrets")
	}
}

// dropExpired drops tokens that have expired, of agents that are gone.
func (c *Issuer) dropExpired(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.issued, func(_ identity.AgentName, signed token.Signed) bool { return now.After(signed.Expiry) })
}

// notify wakes who waits for a change.
func (c *Issuer) notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renewed.Notify()
}
