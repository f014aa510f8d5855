//go:build linux

package e2e

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
	"github.com/argomesh/argomesh/test/harness"
)

// hubSecrets are those beside the hub's Argo CD.
func (w *liveWorld) hubSecrets(t *testing.T) corev1client.SecretInterface {
	t.Helper()
	clients, err := kubernetes.NewForConfig(w.hub.REST())
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
	w := theLiveWorld(t)
	a := w.agent(t, "stays", everything, everything)
	u := a.open(t)
	t.Run("another key signs", func(t *testing.T) {
		ctx, secrets := t.Context(), w.hubSecrets(t)
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
		eventually(t, "another key signs", func() error {
			now, _, _, err := signingKey(ctx, secrets)
			if err == nil && now == before {
				err = errors.New("it is the same")
			}
			return err
		})
		u.flow(t)
		// A token of the earlier key is good until it expires, and one of the new key
		// is good at once.
		for name, c := range map[string]*caller{"a token from before": u.caller, "a token of now": a.caller(t)} {
			if r, err := fetchOne(t.Context(), c.config, "/version"); err != nil || r.status != http.StatusOK {
				t.Errorf("%s: %d %s %v", name, r.status, r.body, err)
			}
		}
	})
	for round := range 2 {
		t.Run(fmt.Sprint("agents come and go ", round), func(t *testing.T) {
			w.agent(t, fmt.Sprint("comes-", round), everything, everything) // and goes with the test
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
	w := theLiveWorldAlone(t)
	a := w.agents[managed]
	u := a.open(t)
	if err := w.door.Kill(); err != nil {
		t.Fatal(err)
	}
	u.breaks(t)
	r, err := fetchOne(t.Context(), u.config, "/version")
	if err != nil {
		t.Fatal(err)
	}
	if r.status != http.StatusServiceUnavailable || !strings.Contains(string(r.body), "refused by the hub's front door") {
		t.Errorf("without a principal: %d %s", r.status, r.body)
	}
	// Envoy goes on refusing what it can judge by itself.
	bad := *u.config
	bad.BearerToken = u.config.BearerToken[:len(u.config.BearerToken)-4] + "AAAA"
	if r, err := fetchOne(t.Context(), &bad, "/version"); err != nil || r.status != http.StatusUnauthorized {
		t.Errorf("a false token without a principal: %d %s %v", r.status, r.body, err)
	}
	if err := w.door.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, a := range w.agents {
		if err := a.reachable(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	u = a.openOn(t, u.object)
	t.Run("deleted keys", func(t *testing.T) {
		if err := w.hubSecrets(t).Delete(t.Context(), token.SecretName, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the token counts for nothing", func() error {
			r, err := fetchOne(t.Context(), u.config, "/version")
			if err == nil && r.status != http.StatusUnauthorized {
				err = fmt.Errorf("%d %s", r.status, r.body)
			}
			return err
		})
		u.breaks(t)
		w.recorded(t, a.name, map[string]any{"verb": "watch", "stage": "end", "result": "withdrawn", "rule": "token"})
		w.recorded(t, a.name, map[string]any{"subresource": "exec", "stage": "end", "result": "withdrawn", "rule": "token"})
		for _, a := range w.agents {
			if err := a.reachable(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		a.openOn(t, u.object)
	})
}

// No log of any process has a token, or what a call or an answer holds.
func TestLiveLogsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	w := theLiveWorldAlone(t) // what others do is in the logs by then, mostly
	const secret = "c2VjcmV0LW9mLWEtYm9keQ"
	needles := map[string]string{"a body": secret}
	for name, a := range w.agents {
		c := a.caller(t)
		c.run("", "create", "configmap", "has-a-secret", "--from-literal=key="+secret, "--namespace=default")
		c.run("", "get", "configmap", "has-a-secret", "-o", "yaml", "--namespace=default")
		c.run("", "delete", "configmap", "has-a-secret", "--namespace=default")
		c.try("", "get", "secrets", "--as=somebody-else", "--namespace=default")
		parts := strings.Split(c.config.BearerToken, ".")
		needles["the token of "+name] = parts[len(parts)-1] // its signature
		w.recorded(t, name, map[string]any{"verb": "delete", "name": "has-a-secret", "stage": "end"})
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
	look(w.door.AuditFile)
	if err := filepath.WalkDir(w.h.Path("logs"), func(path string, entry fs.DirEntry, err error) error {
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
