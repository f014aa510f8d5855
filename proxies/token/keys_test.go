package token_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/token"
	"github.com/argomesh/argomesh/test/kit"
	"github.com/argomesh/argomesh/test/kit/certkit"
)

const hub = "0d2c9a3e-hub"

// secrets is an API server with one Secret: writes are tested on their resource
// version, watches tell of every change.
type secrets struct {
	mu       sync.Mutex // guards what follows
	secret   *corev1.Secret
	revision int
	watches  []*watch.RaceFreeFakeWatcher
	away     bool
	writes   int
}

var secretResource = schema.GroupResource{Resource: "secrets"}

func (s *secrets) down() error {
	if s.away {
		return apierrors.NewServiceUnavailable("away")
	}
	return nil
}

func (s *secrets) Get(context.Context, string, metav1.GetOptions) (*corev1.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.down(); err != nil {
		return nil, err
	}
	if s.secret == nil {
		return nil, apierrors.NewNotFound(secretResource, token.SecretName)
	}
	return s.secret.DeepCopy(), nil
}

func (s *secrets) Create(_ context.Context, secret *corev1.Secret, _ metav1.CreateOptions) (*corev1.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.down(); err != nil {
		return nil, err
	}
	if s.secret != nil {
		return nil, apierrors.NewAlreadyExists(secretResource, secret.Name)
	}
	s.writes++
	return s.put(secret), nil
}

func (s *secrets) Update(_ context.Context, secret *corev1.Secret, _ metav1.UpdateOptions) (*corev1.Secret, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.down(); err != nil {
		return nil, err
	}
	if s.secret == nil || s.secret.ResourceVersion != secret.ResourceVersion {
		return nil, apierrors.NewConflict(secretResource, secret.Name, errors.New("changed"))
	}
	s.writes++
	return s.put(secret), nil
}

func (s *secrets) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.down(); err != nil {
		return nil, err
	}
	w := watch.NewRaceFreeFake()
	s.watches = append(s.watches, w)
	return w, nil
}

// put is called with mu locked.
func (s *secrets) put(secret *corev1.Secret) *corev1.Secret {
	s.revision++
	s.secret = secret.DeepCopy()
	s.secret.ResourceVersion = strconv.Itoa(s.revision)
	for _, w := range s.watches {
		w.Modify(s.secret.DeepCopy())
	}
	return s.secret.DeepCopy()
}

// edit changes the Secret as a person does; nil deletes it.
func (s *secrets) edit(change func(*corev1.Secret) *corev1.Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if next := change(s.secret.DeepCopy()); next != nil {
		s.put(next)
		return
	}
	for _, w := range s.watches {
		w.Delete(s.secret)
	}
	s.secret = nil
}

// connection lets the API server go away and come back.
func (s *secrets) connection(up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = !up
	if !up {
		for _, w := range s.watches {
			w.Stop()
		}
		s.watches = nil
	}
}

func (s *secrets) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// envoy acknowledges keys.
type envoy struct {
	mu  sync.Mutex
	has map[string]bool
}

func (e *envoy) acknowledged(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.has[id]
}

func (e *envoy) take(p token.Published) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.has = map[string]bool{}
	for _, id := range p.KeyIDs {
		e.has[id] = true
	}
}

func newKeys(t *testing.T, s token.Secrets, change func(*token.Config)) *token.Keys {
	t.Helper()
	cfg := token.Config{
		Secrets: s, Namespace: "argocd", HubUID: func(context.Context) (string, bool) { return hub, true },
		Metrics: prometheus.NewRegistry(), Log: zerolog.Nop(),
	}
	if change != nil {
		change(&cfg)
	}
	k, err := token.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// run runs a replica; stop ends it and waits.
func run(t *testing.T, k *token.Keys, holdsLease bool) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	start := func(f func(context.Context) error) {
		group.Go(func() {
			if err := f(ctx); err != nil {
				t.Errorf("it ends with %v", err)
			}
		})
	}
	start(k.Run)
	if holdsLease {
		start(k.Rotate)
	}
	return func() { cancel(); group.Wait() }
}

// lapse lets time go by, that of a bubble.
func lapse(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // time of a bubble
}

func TestKeysBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, e := &secrets{}, &envoy{}
		k := newKeys(t, s, func(c *token.Config) { c.Acknowledged = e.acknowledged })
		edge := kit.Agent(t, "edge-1")
		defer run(t, k, true)()
		synctest.Wait()
		if _, err := k.Sign(edge, token.Holder{}); !errors.Is(err, token.ErrNoKey) || !errors.Is(k.Ready(), token.ErrNoKey) {
			t.Fatalf("a key signs that nobody acknowledged: %v, %v", err, k.Ready())
		}
		published := k.Published()
		if len(published.KeyIDs) != 1 {
			t.Fatalf("published are %d keys", len(published.KeyIDs))
		}
		e.take(published)
		k.AcknowledgedChanged()
		synctest.Wait()
		signed, err := k.Sign(edge, token.Holder{})
		if err != nil || k.Ready() != nil {
			t.Fatal(err, k.Ready())
		}
		if signed.KeyID != published.KeyIDs[0] {
			t.Errorf("signed with key %s, acknowledged is %s", signed.KeyID, published.KeyIDs[0])
		}
		if got, err := k.Verify(signed.Text); err != nil || got != edge {
			t.Errorf("Verify() = %v, %v", got, err)
		}
		before := s.written()
		lapse(12 * time.Hour)
		if after := s.written(); after != before {
			t.Errorf("%d writes although nothing was to be done", after-before)
		}
	})
}

// Before the keys were read no one knows of a token whether it is good: who says that it
// is not sends its caller away for good.
func TestVerifyBeforeTheKeysAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &secrets{}
		holder, fresh := newKeys(t, s, quick), newKeys(t, s, quick)
		defer run(t, holder, true)()
		synctest.Wait()
		holder.AcknowledgedChanged()
		synctest.Wait()
		signed, err := holder.Sign(kit.Agent(t, "edge-1"), token.Holder{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fresh.Verify(signed.Text); !errors.Is(err, token.ErrNoKey) || errors.Is(err, token.ErrInvalid) {
			t.Errorf("before: %v", err)
		}
		defer run(t, fresh, false)()
		synctest.Wait()
		if _, err := fresh.Verify(signed.Text); err != nil {
			t.Errorf("after: %v", err)
		}
		if _, err := fresh.Verify("x.y.z"); !errors.Is(err, identity.ErrUnauthenticated) {
			t.Errorf("no token: %v", err)
		}
	})
}

// quick has tokens of an hour and keys of six.
func quick(c *token.Config) { c.Life, c.KeyLife = time.Hour, 6*time.Hour }

func TestKeysRotateUnderUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &secrets{}
		holder, other := newKeys(t, s, quick), newKeys(t, s, quick)
		defer run(t, holder, true)()
		defer run(t, other, false)()
		edge := kit.Agent(t, "edge-1")
		synctest.Wait()
		used := map[string]bool{}
		signed, err := other.Sign(edge, token.Holder{})
		if err != nil {
			t.Fatal(err)
		}
		// Two days of a token that is renewed when it is due, by one replica, and checked
		// by the other.
		for range 48 * 12 {
			lapse(5 * time.Minute)
			if _, err := holder.Verify(signed.Text); err != nil {
				t.Fatalf("%v after it was signed: %v", time.Since(signed.IssuedAt), err)
			}
			if time.Now().After(signed.Renew) {
				if signed, err = other.Sign(edge, token.Holder{}); err != nil {
					t.Fatal(err)
				}
				used[signed.KeyID] = true
			}
			if n := len(holder.Published().KeyIDs); n < 2 || n > 3 {
				t.Fatalf("%d keys are published", n)
			}
		}
		if len(used) < 8 || len(used) > 9 {
			t.Errorf("%d keys signed in 48 hours, want one in six", len(used))
		}
	})
}

// An unusable Secret is left alone; what was read before goes on.
func TestAnUnusableSecretIsLeftAlone(t *testing.T) {
	tests := map[string]struct {
		change func(*corev1.Secret)
		why    string
	}{
		"no content":     {func(s *corev1.Secret) { s.Data = nil }, "is damaged"},
		"half a content": {func(s *corev1.Secret) { s.Data["keys.json"] = s.Data["keys.json"][:100] }, "is damaged"},
		"more behind it": {func(s *corev1.Secret) { s.Data["keys.json"] = append(s.Data["keys.json"], "{}"...) }, "something follows"},
		"of another hub": {func(s *corev1.Secret) {
			s.Data["keys.json"] = bytes.ReplaceAll(s.Data["keys.json"], []byte(hub), []byte("other"))
		}, "is of another hub"},
		"not ours":         {func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }, "was not made by Argomesh"},
		"a key twice":      {edit(func(m map[string]any) { m["previous"] = m["current"]; delete(m, "next") }), ""},
		"another ID":       {edit(func(m map[string]any) { key(m, "current")["kid"] = "x" }), "not its thumbprint"},
		"no private part":  {edit(func(m map[string]any) { delete(key(m, "current"), "d") }), "is not a private key"},
		"another curve":    {edit(func(m map[string]any) { key(m, "next")["crv"] = "P-384" }), "is damaged"},
		"signs since when": {edit(func(m map[string]any) { delete(m["current"].(map[string]any), "signsSince") }), "since no time"},
		"signs for ever":   {edit(func(m map[string]any) { m["current"].(map[string]any)["longestSeconds"] = 1e12 }), "impossible life"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &secrets{}
				var log bytes.Buffer
				logged := zerolog.New(zerolog.SyncWriter(&log))
				k := newKeys(t, s, func(c *token.Config) { c.Log = logged })
				stop := run(t, k, true)
				synctest.Wait()
				edge := kit.Agent(t, "edge-1")
				signed, err := k.Sign(edge, token.Holder{})
				if err != nil {
					t.Fatal(err)
				}
				good, _ := s.Get(t.Context(), "", metav1.GetOptions{})
				s.edit(func(secret *corev1.Secret) *corev1.Secret { tt.change(secret); return secret })
				writes := s.written()
				lapse(10 * time.Minute)
				if err := k.Ready(); !errors.Is(err, token.ErrUnusable) || !strings.Contains(err.Error(), tt.why) {
					t.Errorf("it is said that %v, want %q", err, tt.why)
				}
				if s.written() != writes {
					t.Error("the Secret was written over")
				}
				if _, err := k.Verify(signed.Text); err != nil {
					t.Errorf("what was signed before is no longer valid: %v", err)
				}
				if _, err := k.Sign(edge, token.Holder{}); err != nil {
					t.Errorf("the keys that are known are not used: %v", err)
				}
				if _, err := k.Inspect(edge, token.Holder{}, signed.Text); !errors.Is(err, token.ErrNoKey) {
					t.Errorf("a token is checked by keys that may not be the hub's: %v", err)
				}
				if n := strings.Count(log.String(), "cannot be used"); n == 0 || n > 2 {
					t.Errorf("it is said %d times that keys cannot be used", n)
				}
				for _, secret := range []string{`"d"`, `"kty"`} {
					if strings.Contains(log.String(), secret) {
						t.Error("the log has a key")
					}
				}
				// A new process has no keys, and makes none.
				fresh := newKeys(t, s, nil)
				stopFresh := run(t, fresh, true)
				synctest.Wait()
				if _, err := fresh.Sign(edge, token.Holder{}); !errors.Is(err, token.ErrNoKey) || !errors.Is(fresh.Ready(), token.ErrUnusable) {
					t.Errorf("a new process signs: %v, %v", err, fresh.Ready())
				}
				// Mended.
				s.edit(func(secret *corev1.Secret) *corev1.Secret {
					good.ResourceVersion = secret.ResourceVersion
					return good
				})
				synctest.Wait()
				if _, err := fresh.Verify(signed.Text); err != nil || fresh.Ready() != nil {
					t.Errorf("after it was restored: %v, %v", err, fresh.Ready())
				}
				stopFresh()
				stop()
			})
		})
	}
}

// edit changes the content of the Secret.
func edit(change func(map[string]any)) func(*corev1.Secret) {
	return func(s *corev1.Secret) {
		var content map[string]any
		if err := json.Unmarshal(s.Data["keys.json"], &content); err != nil {
			panic(err)
		}
		change(content)
		changed, err := json.Marshal(content)
		if err != nil {
			panic(err)
		}
		s.Data["keys.json"] = changed
	}
}

func key(content map[string]any, role string) map[string]any {
	return content[role].(map[string]any)["jwk"].(map[string]any) //nolint:forcetypeassert // panics, which is what a test should do
}

// Deleting the Secret is how a person starts over: at once nothing that was signed
// is valid.
func TestADeletedSecretEndsEveryToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &secrets{}
		k := newKeys(t, s, nil)
		defer run(t, k, true)()
		synctest.Wait()
		edge := kit.Agent(t, "edge-1")
		old, err := k.Sign(edge, token.Holder{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Verify(old.Text); err != nil { // it is remembered
			t.Fatal(err)
		}
		if k.Revoked(old.Text) {
			t.Error("a good token is revoked")
		}
		changed := k.Changed()
		s.edit(func(*corev1.Secret) *corev1.Secret { return nil })
		lapse(5 * time.Second)
		select {
		case <-changed:
		default:
			t.Error("nobody is told")
		}
		if !k.Revoked(old.Text) {
			t.Error("a token whose key was deleted is not revoked")
		}
		if _, err := k.Inspect(edge, token.Holder{}, old.Text); !errors.Is(err, token.ErrInvalid) {
			t.Errorf("the old token: %v", err)
		}
		if signed, err := k.Sign(edge, token.Holder{}); err != nil || signed.KeyID == old.KeyID {
			t.Errorf("signed with %s, %v", signed.KeyID, err)
		} else if k.Revoked(signed.Text) {
			t.Error("a token of the new key is revoked")
		}
		lapse(token.DefaultLife + token.Leeway)
		if k.Revoked(old.Text) {
			t.Error("a token that has come to its end is revoked")
		}
	})
}

func TestKeysOutliveTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &secrets{}
		k := newKeys(t, s, quick)
		defer run(t, k, true)()
		synctest.Wait()
		s.connection(false)
		lapse(12 * time.Hour)
		edge := kit.Agent(t, "edge-1")
		signed, err := k.Sign(edge, token.Holder{})
		if err != nil {
			t.Fatal(err)
		}
		s.connection(true)
		lapse(time.Minute)
		if after, err := k.Sign(edge, token.Holder{}); err != nil || after.KeyID == signed.KeyID {
			t.Errorf("the key is not rotated after twice its life: %v", err)
		}
		if _, err := k.Verify(signed.Text); err != nil {
			t.Errorf("what was signed while it was away: %v", err)
		}
	})
}

// Two that both believe to hold the Lease do not undo each other's keys.
func TestTwoKeepers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &secrets{}
		a, b := newKeys(t, s, quick), newKeys(t, s, quick)
		defer run(t, a, true)()
		defer run(t, b, true)()
		edge := kit.Agent(t, "edge-1")
		for range 24 {
			lapse(time.Hour)
			signed, err := a.Sign(edge, token.Holder{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.Verify(signed.Text); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.written(); n > 12 {
			t.Errorf("%d writes in a day of four keys", n)
		}
	})
}

func TestPublishedHasNoPrivatePart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeys(t, &secrets{}, nil)
		published := func() []byte {
			text, err := json.Marshal(k.Published().Keys)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		if got := string(published()); got != `{"keys":[]}` {
			t.Errorf("without keys it is %s", got)
		}
		defer run(t, k, true)()
		synctest.Wait()
		var set struct{ Keys []map[string]any }
		if err := json.Unmarshal(published(), &set); err != nil || len(set.Keys) != 2 {
			t.Fatalf("%d keys, %v", len(set.Keys), err)
		}
		for _, key := range set.Keys {
			if key["d"] != nil || key["kty"] != "EC" || key["crv"] != "P-256" || key["alg"] != "ES256" || key["use"] != "sig" || key["kid"] == "" {
				t.Errorf("a key is published as %v", key)
			}
		}
	})
}

// What is not exactly one of our tokens is refused.
func TestVerifyRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &secrets{}
		k := newKeys(t, s, nil)
		defer run(t, k, true)()
		synctest.Wait()
		edge := kit.Agent(t, "edge-1")
		good, err := k.Sign(edge, token.Holder{})
		if err != nil {
			t.Fatal(err)
		}
		ours := privateKey(t, s)
		theirs := certkit.Key(t, elliptic.P256())
		now := time.Now()
		claims := func(change func(*jwt.Claims)) jwt.Claims {
			c := jwt.Claims{
				Issuer: token.Issuer(hub), Subject: "edge-1", Audience: jwt.Audience{token.Audience}, ID: "x",
				IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(time.Hour)),
			}
			if change != nil {
				change(&c)
			}
			return c
		}
		signWith := func(alg jose.SignatureAlgorithm, key any, kid string, c any) string {
			t.Helper()
			signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: kid}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			text, err := jwt.Signed(signer).Claims(c).Serialize()
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		sign := func(change func(*jwt.Claims)) string {
			return signWith(jose.ES256, ours, good.KeyID, claims(change))
		}
		at := func(d time.Duration) *jwt.NumericDate { return jwt.NewNumericDate(now.Add(d)) }
		if got, err := k.Verify(sign(nil)); err != nil || got != edge {
			t.Fatalf("the token from which the others are made: %v, %v", got, err)
		}
		parts := strings.Split(good.Text, ".")
		public, err := ours.PublicKey.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		unsigned := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"`+good.KeyID+`"}`)) + "." + parts[1] + "."
		bad := map[string]string{
			"nothing":                     "",
			"no token":                    "Bearer",
			"a token too long":            good.Text + strings.Repeat("a", 4<<10),
			"without a signature":         unsigned,
			"half a signature":            good.Text[:len(good.Text)-10],
			"with another's content":      parts[0] + "." + strings.Split(sign(func(c *jwt.Claims) { c.Subject = "edge-2" }), ".")[1] + "." + parts[2],
			"of another's key":            signWith(jose.ES256, theirs, good.KeyID, claims(nil)),
			"of a key nobody has":         signWith(jose.ES256, theirs, "another", claims(nil)),
			"of no key":                   signWith(jose.ES256, ours, "", claims(nil)),
			"by HMAC with public data":    signWith(jose.HS256, public, good.KeyID, claims(nil)),
			"of another issuer":           sign(func(c *jwt.Claims) { c.Issuer = token.Issuer("other") }),
			"of an issuer that is longer": sign(func(c *jwt.Claims) { c.Issuer += "/" }),
			"of no issuer":                sign(func(c *jwt.Claims) { c.Issuer = "" }),
			"for another audience":        sign(func(c *jwt.Claims) { c.Audience = jwt.Audience{"other"} }),
			"for two audiences":           sign(func(c *jwt.Claims) { c.Audience = jwt.Audience{token.Audience, "other"} }),
			"for no audience":             sign(func(c *jwt.Claims) { c.Audience = nil }),
			"expired":                     sign(func(c *jwt.Claims) { c.Expiry = at(-token.Leeway - 2*time.Second) }),
			"without an end":              sign(func(c *jwt.Claims) { c.Expiry = nil }),
			"not valid yet":               sign(func(c *jwt.Claims) { c.NotBefore = at(token.Leeway + 2*time.Second) }),
			"without a beginning":         sign(func(c *jwt.Claims) { c.NotBefore = nil }),
			"issued in the future":        sign(func(c *jwt.Claims) { c.IssuedAt = at(token.Leeway + 2*time.Second) }),
			"issued never":                sign(func(c *jwt.Claims) { c.IssuedAt = nil }),
			"without an ID":               sign(func(c *jwt.Claims) { c.ID = "" }),
			"of no agent":                 sign(func(c *jwt.Claims) { c.Subject = "" }),
			"of what cannot be an agent":  sign(func(c *jwt.Claims) { c.Subject = "../edge-1" }),
			"with a subject in JSON":      signWith(jose.ES256, ours, good.KeyID, map[string]any{"sub": map[string]string{"clientID": "edge-1"}}),
		}
		for name, text := range bad {
			if got, err := k.Verify(text); !errors.Is(err, token.ErrInvalid) {
				t.Errorf("%s: it is of agent %q, %v", name, got, err)
			} else if len(text) > 40 && strings.Contains(err.Error(), text[:40]) {
				t.Errorf("%s: the error has the token: %v", name, err)
			}
		}
		good2 := map[string]string{
			"expired within the leeway":     sign(func(c *jwt.Claims) { c.Expiry = at(-token.Leeway / 2) }),
			"issued by a clock a bit ahead": sign(func(c *jwt.Claims) { c.IssuedAt, c.NotBefore = at(token.Leeway/2), at(token.Leeway/2) }),
		}
		for name, text := range good2 {
			if _, err := k.Verify(text); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := k.Inspect(kit.Agent(t, "edge-2"), token.Holder{}, good.Text); !errors.Is(err, token.ErrInvalid) {
			t.Errorf("the token of another agent: %v", err)
		}
		lapse(token.DefaultLife + token.Leeway + time.Second)
		if _, err := k.Verify(good.Text); !errors.Is(err, token.ErrInvalid) {
			t.Errorf("a day and a minute later: %v", err)
		}
	})
}

// A token that was seen to be good is so no longer than one that was not.
func TestRememberedTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, metrics := &secrets{}, prometheus.NewRegistry()
		k := newKeys(t, s, func(c *token.Config) { c.Metrics = metrics })
		defer run(t, k, true)()
		synctest.Wait()
		edge := kit.Agent(t, "edge-1")
		signed, err := k.Sign(edge, token.Holder{})
		if err != nil {
			t.Fatal(err)
		}
		verify := func(when string, want error) {
			t.Helper()
			for range 2 {
				if got, err := k.Verify(signed.Text); !errors.Is(err, want) || (err == nil && got != edge) {
					t.Errorf("%s: it is of %q, %v, want %v", when, got, err, want)
				}
			}
		}
		verify("at first", nil)
		s.connection(false) // so that the keys stay as they are
		lapse(token.DefaultLife + token.Leeway - time.Second)
		verify("shortly before its end", nil)
		const one = "# HELP argomesh_token_remembered Good tokens whose signature is not looked at again, until the keys are read next.\n" +
			"# TYPE argomesh_token_remembered gauge\nargomesh_token_remembered 1\n"
		if err := testutil.GatherAndCompare(metrics, strings.NewReader(one), "argomesh_token_remembered"); err != nil {
			t.Error(err)
		}
		lapse(2 * time.Second)
		verify("after its end", token.ErrInvalid)
	})
}

// privateKey reads the key that signs out of the Secret.
func privateKey(t *testing.T, s *secrets) *ecdsa.PrivateKey {
	t.Helper()
	secret, err := s.Get(t.Context(), "", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var content struct {
		Current struct {
			JWK jose.JSONWebKey `json:"jwk"`
		} `json:"current"`
	}
	if err := json.Unmarshal(secret.Data["keys.json"], &content); err != nil {
		t.Fatal(err)
	}
	private, ok := content.Current.JWK.Key.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatalf("the key is a %T", content.Current.JWK.Key)
	}
	return private
}

func TestRenewalIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeys(t, &secrets{}, nil)
		defer run(t, k, true)()
		synctest.Wait()
		edge := kit.Agent(t, "edge-1")
		var early, late int
		for range 1000 {
			s, err := k.Sign(edge, token.Holder{})
			if err != nil {
				t.Fatal(err)
			}
			at := float64(s.Renew.Sub(s.IssuedAt)) / float64(s.Expiry.Sub(s.IssuedAt))
			if at < 0.45 || at > 0.55 {
				t.Fatalf("renewed at %.3f of its life", at)
			}
			if at < 0.47 {
				early++
			}
			if at > 0.53 {
				late++
			}
			if again, err := k.Inspect(edge, token.Holder{}, s.Text); err != nil || !again.Renew.Equal(s.Renew) {
				t.Fatalf("asked again it is %v, not %v (%v)", again.Renew, s.Renew, err)
			}
		}
		if early < 100 || late < 100 {
			t.Errorf("of 1000 only %d are early and %d late: they come in a crowd", early, late)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	for name, change := range map[string]func(*token.Config){
		"no secrets":         func(c *token.Config) { c.Secrets = nil },
		"no namespace":       func(c *token.Config) { c.Namespace = "" },
		"no hub":             func(c *token.Config) { c.HubUID = nil },
		"no metrics":         func(c *token.Config) { c.Metrics = nil },
		"a short life":       func(c *token.Config) { c.Life = token.MinLife - time.Second },
		"a long life":        func(c *token.Config) { c.Life, c.KeyLife = token.MaxLife+time.Second, 2*token.MaxLife },
		"half a second":      func(c *token.Config) { c.Life = time.Hour + time.Millisecond },
		"a key that is late": func(c *token.Config) { c.KeyLife = time.Hour },
	} {
		cfg := token.Config{
			Secrets: &secrets{}, Namespace: "argocd", HubUID: func(context.Context) (string, bool) { return hub, true },
			Metrics: prometheus.NewRegistry(),
		}
		change(&cfg)
		if _, err := token.New(cfg); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	newKeys(t, &secrets{}, func(c *token.Config) { c.Life = token.MaxLife }) // the life of a key follows
	newKeys(t, &secrets{}, func(c *token.Config) { c.Life, c.KeyLife = token.MinLife, token.MinLife })
}
