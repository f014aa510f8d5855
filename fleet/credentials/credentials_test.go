package credentials

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/token"
	"github.com/argomesh/argomesh/test/kit"
)

// countingKeys sign tokens that say who they are of and which they are.
type countingKeys struct {
	mu      sync.Mutex // guards what follows
	life    time.Duration
	signed  map[string]token.Signed
	ready   bool
	unknown bool // the keys were not read
	changed chan struct{}
}

// SignFor implements tokenKeys.
func (k *countingKeys) SignFor(identity.AgentName, token.Holder, string, time.Duration) (token.Signed, error) {
	return token.Signed{}, token.ErrNoKey // of no one here
}

func (k *countingKeys) Sign(agent identity.AgentName, _ token.Holder) (token.Signed, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.ready {
		return token.Signed{}, token.ErrNoKey
	}
	s := token.Signed{
		Text: fmt.Sprintf("%s/%d", agent, len(k.signed)+1), IssuedAt: time.Now(),
		Renew: time.Now().Add(k.life / 2), Expiry: time.Now().Add(k.life),
	}
	k.signed[s.Text] = s
	return s, nil
}

func (k *countingKeys) Inspect(agent identity.AgentName, _ token.Holder, text string) (token.Signed, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.unknown {
		return token.Signed{}, token.ErrNoKey
	}
	s, found := k.signed[text]
	if !found || !strings.HasPrefix(text, agent.String()+"/") || time.Now().After(s.Expiry) {
		return token.Signed{}, token.ErrInvalid
	}
	return s, nil
}

func (k *countingKeys) Changed() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changed
}

// set changes the keys and tells.
func (k *countingKeys) set(change func(*countingKeys)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(k)
	close(k.changed)
	k.changed = make(chan struct{})
}

// issuerEnv is one Issuer and the Secret of agent edge-1.
type issuerEnv struct {
	t    *testing.T
	keys *countingKeys
	c    *Issuer
	edge *v1alpha1.Agent
	have []byte

	mu sync.Mutex // guards ca
	ca string     // empty cannot be read
}

func newIssuerEnv(t *testing.T) *issuerEnv {
	t.Helper()
	edge := &v1alpha1.Agent{}
	edge.Name = "edge-1"
	w := &issuerEnv{t: t, edge: edge, ca: "PEM 1", keys: &countingKeys{life: 24 * time.Hour, signed: map[string]token.Signed{}, ready: true, changed: make(chan struct{})}}
	w.c = &Issuer{
		keys: w.keys, lifetime: w.keys.life, log: zerolog.Nop(), issued: map[identity.AgentName]token.Signed{},
		authorities: Authorities{Read: func() ([]byte, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.ca == "" {
				return nil, errors.New("unreadable")
			}
			return []byte(w.ca), nil
		}},
	}
	return w
}

// lapse lets time go by, that of a bubble.
func lapse(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // time of a bubble
}

// pass reconciles the Secret, and returns its token, authorities and when to look
// again.
func (w *issuerEnv) pass() (text, ca string, again time.Duration) {
	w.t.Helper()
	got, err := w.c.Config(w.t.Context(), w.edge, w.have)
	if err != nil {
		w.t.Fatal(err)
	}
	w.have = got.JSON
	var content struct {
		BearerToken     string
		TLSClientConfig struct {
			Insecure bool
			CAData   []byte
		}
	}
	if err := json.Unmarshal(got.JSON, &content); err != nil || content.TLSClientConfig.Insecure {
		w.t.Fatalf("the config is %s: %v", got.JSON, err)
	}
	return content.BearerToken, string(content.TLSClientConfig.CAData), got.RenewAfter
}

func (w *issuerEnv) expect(text, ca string, again time.Duration) {
	w.t.Helper()
	gotText, gotCA, gotAgain := w.pass()
	if diff := cmp.Diff([]any{text, ca, again}, []any{gotText, gotCA, gotAgain}); diff != "" {
		w.t.Errorf("token, authorities and the next look (-want +got):\n%s", diff)
	}
}

func TestATokenIsRenewedAtHalfItsLifeAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newIssuerEnv(t)
		w.c.readAuthorities()
		w.expect("edge-1/1", "PEM 1", 12*time.Hour)
		lapse(11 * time.Hour)
		w.expect("edge-1/1", "PEM 1", time.Hour)
		w.c.issued = map[identity.AgentName]token.Signed{} // as after a restart
		w.expect("edge-1/1", "PEM 1", time.Hour)
		lapse(time.Hour)
		w.expect("edge-1/2", "PEM 1", 12*time.Hour)
		if n := len(w.keys.signed); n != 2 {
			t.Errorf("%d tokens were signed", n)
		}
		w.c.dropExpired(time.Now().Add(25 * time.Hour))
		if n := len(w.c.issued); n != 0 {
			t.Errorf("%d expired tokens are remembered", n)
		}
	})
}

// Anyone who changes a token is undone by the same one, so that the pace of restores
// holds.
func TestAnEditIsRestoredByTheSameToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newIssuerEnv(t)
		w.c.readAuthorities()
		w.pass()
		for _, edit := range []string{`{}`, `not JSON`, `{"bearerToken":"edge-2/1"}`, `{"bearerToken":"edge-1/1","username":"x"}`, ``} {
			w.have = []byte(edit)
			w.expect("edge-1/1", "PEM 1", 12*time.Hour)
		}
	})
}

func TestWithoutKeysASecretStaysAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newIssuerEnv(t)
		w.keys.ready = false
		w.c.readAuthorities()
		w.expect("", "PEM 1", 0) // Argo CD knows the cluster, and cannot call it yet
		w.keys.ready = true
		w.expect("edge-1/1", "PEM 1", 12*time.Hour)
		w.keys.unknown, w.keys.ready = true, false
		lapse(20 * time.Hour)
		w.expect("edge-1/1", "PEM 1", 0)
		w.keys.unknown, w.keys.ready = false, true
		w.expect("edge-1/2", "PEM 1", 12*time.Hour)
	})
}

// After the keys were withdrawn every token is replaced.
func TestATokenOfKeysThatAreGoneIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newIssuerEnv(t)
		w.c.readAuthorities()
		w.pass()
		w.keys.set(func(k *countingKeys) { k.signed = map[string]token.Signed{"other": {}}; k.ready = false })
		w.expect("edge-1/1", "PEM 1", 0) // of no use, and nothing better is there
		w.keys.set(func(k *countingKeys) { k.ready = true })
		w.expect("edge-1/2", "PEM 1", 12*time.Hour)
	})
}

func TestATokenOfALongerLifeIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newIssuerEnv(t)
		w.c.readAuthorities()
		w.pass()
		w.keys.life, w.c.lifetime = time.Hour, time.Hour
		w.expect("edge-1/2", "PEM 1", 30*time.Minute)
	})
}

func TestAuthoritiesAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newIssuerEnv(t)
		set := func(ca string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.ca = ca
		}
		told := func(changed <-chan struct{}) bool {
			select {
			case <-changed:
				return true
			default:
				return false
			}
		}
		before := `{"bearerToken":"edge-1/0","tlsClientConfig":{"insecure":false,"caData":"UEVNIDA="}}`
		w.have = []byte(before)
		if got, err := w.c.Config(t.Context(), w.edge, w.have); err != nil || string(got.JSON) != before {
			t.Errorf("before the authorities are known it becomes %s, %v", got.JSON, err)
		}
		kit.Background(t, w.c.Run)
		synctest.Wait()
		w.expect("edge-1/1", "PEM 1", 12*time.Hour)
		changed := w.c.Changed()
		lapse(time.Minute)
		if told(changed) {
			t.Error("a change is told of, and there is none")
		}
		set("PEM 1\nPEM 2")
		lapse(authoritiesInterval)
		synctest.Wait()
		if !told(changed) {
			t.Error("new authorities are not told of")
		}
		w.expect("edge-1/1", "PEM 1\nPEM 2", 12*time.Hour-time.Minute-authoritiesInterval)
		changed = w.c.Changed()
		set("")
		lapse(time.Minute)
		if told(changed) {
			t.Error("unreadable authorities are told of")
		}
		_, ca, _ := w.pass()
		if ca != "PEM 1\nPEM 2" {
			t.Errorf("unreadable authorities are now %q", ca)
		}
		w.keys.set(func(*countingKeys) {})
		synctest.Wait()
		if !told(changed) {
			t.Error("new keys are not told of")
		}
	})
}
