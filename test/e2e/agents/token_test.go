//go:build linux

package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/token"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
	"github.com/argomesh/argomesh/test/kit"
)

// tokens is a hub whose principal puts tokens into cluster Secrets.
type tokens struct {
	t         *testing.T
	hub       *harness.ControlPlane
	principal *harness.Principal
	secrets   corev1client.SecretInterface
	caFile    string
	verifier  *token.Keys // reads the keys as another replica does
}

const proxyURL = "https://proxy.example.org:9090"

// A cluster Secret has a token of its agent, written when it is due and at no other
// time, whatever becomes of the principal and its keys.
func TestTokens(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver")
	w := startTokens(t)
	edge, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	var first *corev1.Secret
	var firstToken string
	env.Eventually(t, "a token in the cluster Secret", func() (err error) {
		first, firstToken, err = w.valid(edge)
		return err
	})
	if got := string(first.Data["server"]); got != proxyURL+"/agents/edge-1" {
		t.Errorf("the server is %s", got)
	}
	t.Run("a restart writes nothing", func(t *testing.T) {
		if err := env.KillAndStart(t.Context(), w.principal.Process); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "the agent was looked at", w.looked)
		env.Eventually(t, "the keys were read", func() error { return w.usable(true) })
		if now := w.cluster(); now.ResourceVersion != first.ResourceVersion {
			t.Errorf("the Secret was written again")
		}
	})
	t.Run("an edit is undone by a token that is valid", func(t *testing.T) {
		edited := w.cluster()
		edited.Data["config"] = []byte(`{"bearerToken":"stolen","tlsClientConfig":{"insecure":true}}`)
		if _, err := w.secrets.Update(t.Context(), edited, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "the token is back", func() error {
			secret, _, err := w.valid(edge)
			if err == nil && strings.Contains(string(secret.Data["config"]), `"insecure":true`) {
				err = errors.New("the rest of the edit stays")
			}
			return err
		})
	})
	t.Run("new authorities keep the token", func(t *testing.T) {
		_, before, err := w.valid(edge)
		if err != nil {
			t.Fatal(err)
		}
		authorities, err := os.ReadFile(w.caFile)
		if err != nil {
			t.Fatal(err)
		}
		both := strings.Repeat(string(authorities), 2)
		if err := os.WriteFile(w.caFile, []byte(both), 0o600); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "both authorities in the Secret", func() error {
			if got := w.credentials(); string(got.CA) != both || got.BearerToken != before {
				return fmt.Errorf("%d bytes of authorities, token the same: %v", len(got.CA), got.BearerToken == before)
			}
			return nil
		})
	})
	t.Run("damaged keys are left alone", func(t *testing.T) {
		before, good := w.cluster(), w.keys()
		damaged := good.DeepCopy()
		damaged.Data["keys.json"] = []byte("{")
		if _, err := w.secrets.Update(t.Context(), damaged, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "the principal says so", func() error { return w.usable(false) })
		if err := env.KillAndStart(t.Context(), w.principal.Process); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "the agent was looked at", w.looked)
		if got := string(w.keys().Data["keys.json"]); got != "{" {
			t.Errorf("they were written over: %d bytes", len(got))
		}
		if now := w.cluster(); !bytes.Equal(now.Data["config"], before.Data["config"]) {
			t.Error("the token was taken out of the cluster Secret")
		}
		restored := w.keys()
		restored.Data = good.Data
		if _, err := w.secrets.Update(t.Context(), restored, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "the keys are used again", func() error { return w.usable(true) })
		if now := w.cluster(); !bytes.Equal(now.Data["config"], before.Data["config"]) {
			t.Error("a token that is valid was replaced")
		}
	})
	t.Run("deleted keys end every token", func(t *testing.T) {
		_, before, err := w.valid(edge)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.secrets.Delete(t.Context(), token.SecretName, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "another token of another key", func() error {
			_, now, err := w.valid(edge)
			if err == nil && now == before {
				err = errors.New("it is still the one before")
			}
			return err
		})
		for _, old := range []string{firstToken, before} {
			if _, err := w.verifier.Verify(old); !errors.Is(err, token.ErrInvalid) {
				t.Errorf("a token of the deleted keys: %v", err)
			}
		}
	})
}

func startTokens(t *testing.T) *tokens {
	t.Helper()
	h := harnesstest.New(t)
	ctx := t.Context()
	hub, err := env.StartBareControlPlane(ctx, h, "tokens", nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &tokens{t: t, hub: hub, caFile: h.Path("proxy-ca.pem")}
	authorities := hub.REST().CAData
	if len(authorities) == 0 {
		t.Fatal("the API server has no authority to borrow")
	}
	if err := os.WriteFile(w.caFile, authorities, 0o600); err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(hub.REST())
	if err != nil {
		t.Fatal(err)
	}
	w.secrets = clients.CoreV1().Secrets(harness.ArgoCDNamespace)
	svids, err := h.StartWorkloadAPI(ctx, harness.WorkloadAPIConfig{
		Name: "spire", TrustDomain: env.TrustDomain, CADir: h.Path("ca"), Entries: []string{env.PrincipalID},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.principal, err = h.StartPrincipal(ctx, harness.PrincipalConfig{ControlPlane: hub, WorkloadAPI: svids, Settings: harness.Settings{
		"resource_proxy.url": proxyURL, "resource_proxy.credentials.enabled": true, "resource_proxy.credentials.ca_file": w.caFile,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Agentctl(ctx, hub, "agent", "create", "edge-1", "--mode", "managed", "--spiffe-id", env.SPIFFEID("edge-1"), "--wait"); err != nil {
		t.Fatal(err)
	}
	// The principal has made the Secret of an agent, so it knows who it is.
	identity, err := clients.CoreV1().ConfigMaps(harness.ArgoCDNamespace).Get(ctx, "argomesh-hub", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.verifier, err = token.New(token.Config{
		Secrets: w.secrets, Namespace: harness.ArgoCDNamespace, Metrics: prometheus.NewRegistry(), Log: zerolog.Nop(),
		HubUID: func(context.Context) (string, bool) { return identity.Data["uid"], true },
	})
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, w.verifier.Run)
	return w
}

func (w *tokens) secret(name string) *corev1.Secret {
	w.t.Helper()
	s, err := w.secrets.Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *tokens) cluster() *corev1.Secret { return w.secret("cluster-edge-1") }
func (w *tokens) keys() *corev1.Secret    { return w.secret(token.SecretName) }

func (w *tokens) credentials() controller.Credentials {
	w.t.Helper()
	var c controller.Credentials
	if err := json.Unmarshal(w.cluster().Data["config"], &c); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// valid returns the cluster Secret with its token, or why that is none of edge now.
func (w *tokens) valid(edge identity.AgentName) (*corev1.Secret, string, error) {
	secret, credentials := w.cluster(), w.credentials()
	agent, err := w.verifier.Verify(credentials.BearerToken)
	switch {
	case err != nil:
		return nil, "", err
	case agent != edge:
		return nil, "", fmt.Errorf("it is of agent %s", agent)
	case len(credentials.CA) == 0:
		return nil, "", errors.New("it has no authorities")
	}
	return secret, credentials.BearerToken, nil
}

// looked returns nil once the principal that runs now has looked at an Agent.
func (w *tokens) looked() error {
	_, err := env.Gauge(w.t.Context(), w.principal.AdminAddress, `argomesh_fleet_reconciles_total{result="ok"}`)
	return err // a counter with labels is there once it counted
}

func (w *tokens) usable(want bool) error {
	got, err := env.Metric(w.t.Context(), w.principal.AdminAddress, "argomesh_token_keys_usable")
	if err == nil && (got == 1) != want {
		err = fmt.Errorf("argomesh_token_keys_usable is %v", got)
	}
	return err
}
