//go:build linux

package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/argomesh/argomesh/proxies/token"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// hubSecrets are those beside the hub's Argo CD.
func hubSecrets(t *testing.T, w *env.Live) corev1client.SecretInterface {
	t.Helper()
	clients, err := kubernetes.NewForConfig(w.Hub.REST())
	if err != nil {
		t.Fatal(err)
	}
	return clients.CoreV1().Secrets(harness.ArgoCDNamespace)
}

// signingKey returns the id of the key that signs, and all of the Secret's content.
func signingKey(ctx context.Context, secrets corev1client.SecretInterface) (id string, content map[string]any, secret *corev1.Secret, err error) {
	if secret, err = secrets.Get(ctx, token.SecretName, metav1.GetOptions{}); err != nil {
		return "", nil, nil, err
	}
	if err := json.Unmarshal(secret.Data["keys.json"], &content); err != nil {
		return "", nil, nil, err
	}
	current, ok := content["current"].(map[string]any)
	if !ok {
		return "", nil, nil, errors.New("no key signs yet")
	}
	return fmt.Sprint(current["jwk"].(map[string]any)["kid"]), content, secret, nil
}

// Watches, logs that are followed and sessions go on while keys rotate and agents
// come and go, beyond the time that Envoy drains for.
func TestLiveTurnover(t *testing.T) {
	t.Parallel()
	w := env.SharedLive(t)
	a := w.Agent(t, "stays", env.Everything, env.Everything)
	u := open(t, a)
	t.Run("another key signs", func(t *testing.T) {
		ctx, secrets := t.Context(), hubSecrets(t, w)
		before, content, secret, err := signingKey(ctx, secrets)
		if err != nil {
			t.Fatal(err)
		}
		// As if the key had signed for longer than it may.
		content["current"].(map[string]any)["signsSince"] = time.Now().Add(-1000 * time.Hour).UTC()
		content["current"].(map[string]any)["created"] = time.Now().Add(-1001 * time.Hour).UTC()
		if secret.Data["keys.json"], err = json.Marshal(content); err != nil {
			t.Fatal(err)
		}
		if _, err := secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "another key signs", func() error {
			now, _, _, err := signingKey(ctx, secrets)
			if err == nil && now == before {
				err = errors.New("it is the same")
			}
			return err
		})
		u.flow(t)
		// A token of the earlier key is good until it expires, and one of the new key
		// is good at once.
		for name, c := range map[string]*env.Caller{"a token from before": u.Caller, "a token of now": a.Caller(t)} {
			if r, err := env.FetchOne(t.Context(), c.Config, "/version"); err != nil || r.Status != http.StatusOK {
				t.Errorf("%s: %d %s %v", name, r.Status, r.Body, err)
			}
		}
	})
	for round := range 2 {
		t.Run(fmt.Sprint("agents come and go ", round), func(t *testing.T) {
			w.Agent(t, fmt.Sprint("comes-", round), env.Everything, env.Everything) // and goes with the test
			u.flow(t)
		})
		drained := time.NewTimer(3 * envoyDrain)
		select {
		case <-drained.C:
		case <-t.Context().Done():
		}
		u.flow(t)
	}
}

// envoyDrain is how long an Envoy of the harness keeps connections of a listener that
// changed.
const envoyDrain = time.Second

// When the principal is killed calls end with an error and Envoy says why nothing can
// be had; another principal takes up where it was. Deleted keys end all tokens, and
// the calls under way that came with them.
func TestLivePrincipalRestart(t *testing.T) {
	t.Parallel()
	w := env.OwnLive(t)
	a := w.Agents[env.Managed]
	u := open(t, a)
	if err := w.FrontDoor.Kill(); err != nil {
		t.Fatal(err)
	}
	u.breaks(t)
	r, err := env.FetchOne(t.Context(), u.Config, "/version")
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != http.StatusServiceUnavailable || !strings.Contains(string(r.Body), "refused by the hub's front door") {
		t.Errorf("without a principal: %d %s", r.Status, r.Body)
	}
	// Envoy goes on refusing what it can judge by itself.
	bad := *u.Config
	bad.BearerToken = u.Config.BearerToken[:len(u.Config.BearerToken)-4] + "AAAA"
	if r, err := env.FetchOne(t.Context(), &bad, "/version"); err != nil || r.Status != http.StatusUnauthorized {
		t.Errorf("a false token without a principal: %d %s %v", r.Status, r.Body, err)
	}
	if err := w.FrontDoor.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, a := range w.Agents {
		if err := a.Reachable(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	u = openOn(t, a, u.object)
	t.Run("deleted keys", func(t *testing.T) {
		if err := hubSecrets(t, w).Delete(t.Context(), token.SecretName, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "the token counts for nothing", func() error {
			r, err := env.FetchOne(t.Context(), u.Config, "/version")
			if err == nil && r.Status != http.StatusUnauthorized {
				err = fmt.Errorf("%d %s", r.Status, r.Body)
			}
			return err
		})
		u.breaks(t)
		w.Recorded(t, a.Name, map[string]any{"verb": "watch", "stage": "end", "result": "withdrawn", "rule": "token"})
		w.Recorded(t, a.Name, map[string]any{"subresource": "exec", "stage": "end", "result": "withdrawn", "rule": "token"})
		for _, a := range w.Agents {
			if err := a.Reachable(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		openOn(t, a, u.object)
	})
}

// No log of any process has a token, or what a call or an answer holds.
func TestLiveLogsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	w := env.OwnLive(t) // what others do is in the logs by then, mostly
	const secret = "c2VjcmV0LW9mLWEtYm9keQ"
	needles := map[string]string{"a body": secret}
	for name, a := range w.Agents {
		c := a.Caller(t)
		c.Run("", "create", "configmap", "has-a-secret", "--from-literal=key="+secret, "--namespace=default")
		c.Run("", "get", "configmap", "has-a-secret", "-o", "yaml", "--namespace=default")
		c.Run("", "delete", "configmap", "has-a-secret", "--namespace=default")
		c.Try("", "get", "secrets", "--as=somebody-else", "--namespace=default")
		parts := strings.Split(c.Config.BearerToken, ".")
		needles["the token of "+name] = parts[len(parts)-1] // its signature
		w.Recorded(t, name, map[string]any{"verb": "delete", "name": "has-a-secret", "stage": "end"})
	}
	looked := 0
	look := func(file string) {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		looked++
		for what, needle := range needles {
			if strings.Contains(string(content), needle) {
				t.Errorf("%s is in %s", what, filepath.Base(file))
			}
		}
	}
	look(w.FrontDoor.AuditFile)
	if err := filepath.WalkDir(w.Harness.Path("logs"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			look(path)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	if looked < 10 {
		t.Errorf("%d files were looked at", looked)
	}
}
