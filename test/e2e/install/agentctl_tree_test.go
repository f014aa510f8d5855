//go:build linux

package install

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
	"github.com/argomesh/argomesh/test/harness/kubelet"
	"github.com/argomesh/argomesh/test/kit"
)

// shown are two clusters after the two commands, with an Application of the hub that is healthy on the spoke.
type shown struct {
	*guided
	containers *env.Live   // what the pods of the Application have written
	server     string      // address of this machine that leads to argocd-server in its pod
	api        env.ArgoAPI // of it
}

// shownApp is the Application, its namespace on the spoke, and its container.
const shownApp = "guestbook"

// The two commands take two bare clusters to an Application whose tree, diff, logs and terminal stock Argo CD shows: its
// argocd-server runs from what is installed, as principal, agents, Envoy and the spoke's Redis do. The application
// controller and the repo server of the spoke run beside their pods, since these reach no git.
func TestAgentctlInstallShowsTrees(t *testing.T) {
	t.Parallel()
	runSkipped(t)
	s := newShown(t)
	pod := s.showsTree(t)
	t.Run("diff", func(t *testing.T) { s.showsDiff(t) })
	t.Run("logs", func(t *testing.T) { s.showsLogs(t, pod) })
	t.Run("terminal", func(t *testing.T) {
		env.TypeInto(t, s.server, s.api.Token, url.Values{
			"pod": {pod}, "container": {shownApp}, "appName": {shownApp}, "appNamespace": {harness.ArgoCDNamespace},
			"projectName": {"default"}, "namespace": {shownApp}, "shell": {"sh"},
		})
	})
}

func newShown(t *testing.T) *shown {
	t.Helper()
	h := harnesstest.New(t)
	s := &shown{containers: env.NewLive(h)}
	stages := leftToPods(t, h, "argocd-server")
	ofContainers, err := s.containers.Kubelet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stages, []byte(content(t, stages)+content(t, ofContainers)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.guided = newGuideIn(t, h, stages, "argocd-server")
	t.Cleanup(s.pretends(t))

	brings := append([]string{"--registry", registry, "--with", "spire,argocd"}, s.brings...)
	must(t, s.kubeconfig, append([]string{"hub", "install", "--context", "hub", "--trust-domain", "hub.example", "--terminal",
		"--set", "service.type=LoadBalancer", "--set", "envoy.image.repository=" + registry + "/envoy"}, brings...)...)
	must(t, s.kubeconfig, append([]string{"spoke", "install", "edge-1", "--context", "edge-1", "--hub-context", "hub",
		"--trust-domain", "edge-1.example", "--access", "read,exec"}, brings...)...)

	s.deploys(t, h)
	s.server = through(t, s.hubNode, "argocd-server", 8080, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // its own certificate
	s.api = env.ArgoAPI{Base: "http://" + s.server + "/api/v1/"}
	body, err := json.Marshal(map[string]string{"username": "admin", "password": secretOf(t, s.hub, "argocd-initial-admin-secret", "password")})
	if err != nil {
		t.Fatal(err)
	}
	var session struct{ Token string }
	if err := s.api.Call(t.Context(), http.MethodPost, "session", body, &session); err != nil {
		t.Fatal(err)
	}
	s.api.Token = session.Token
	return s
}

// deploys has an Application of the hub be healthy on the spoke.
func (s *shown) deploys(t *testing.T, h *harness.Harness) {
	t.Helper()
	repository, err := h.NewRepository(t.Context(), "repo", harness.GuestbookFiles())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.StartArgoCD(t.Context(), harness.ArgoCDConfig{
		ControlPlane: s.spoke, Controller: true,
		RedisAddress: through(t, s.spokeNode, "argocd-redis", 6379, nil), RedisPassword: secretOf(t, s.spoke, "argocd-redis", "auth"),
	}); err != nil {
		t.Fatal(err)
	}
	apps := s.hub.Resource(harness.Applications, harness.ArgoCDNamespace)
	env.Create(t, apps, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": shownApp},
		"spec": map[string]any{
			"project":     "default",
			"source":      map[string]any{"repoURL": repository.URL, "path": harness.GuestbookPath, "targetRevision": harness.Branch},
			"destination": map[string]any{"name": "edge-1", "namespace": shownApp},
			"syncPolicy":  map[string]any{"automated": map[string]any{}, "syncOptions": []any{"CreateNamespace=true"}},
		},
	}})
	soon(t, "the Application is healthy on the hub", func() error { return env.Healthy(t.Context(), apps, shownApp) })
}

// showsTree waits until the tree is shown, and returns a pod of it.
func (s *shown) showsTree(t *testing.T) (pod string) {
	t.Helper()
	var tree struct {
		Nodes []struct{ Kind, Namespace, Name string }
	}
	soon(t, "argocd-server shows the tree", func() error {
		if err := s.api.Call(t.Context(), http.MethodGet, "applications/"+shownApp+"/resource-tree?appNamespace=argocd", nil, &tree); err != nil {
			return err
		}
		kinds := map[string]string{}
		for _, n := range tree.Nodes {
			kinds[n.Kind] = n.Name
		}
		for _, want := range []string{"ConfigMap", "Deployment", "Pod", "ReplicaSet", "Service"} {
			if kinds[want] == "" {
				return fmt.Errorf("it has no %s: %v", want, tree.Nodes)
			}
		}
		pod = kinds["Pod"]
		return nil
	})
	return pod
}

// showsDiff changes something on the spoke, and waits until it is shown beside what is in git.
func (s *shown) showsDiff(t *testing.T) {
	t.Helper()
	env.Patch(t, s.spoke.Resource(env.ConfigMaps, shownApp), shownApp, map[string]any{"data": map[string]any{"greeting": "changed by hand"}})
	soon(t, "argocd-server shows the difference", func() error {
		var managed struct {
			Items []struct{ Kind, NormalizedLiveState, PredictedLiveState string }
		}
		if err := s.api.Call(t.Context(), http.MethodGet, "applications/"+shownApp+"/managed-resources?appNamespace=argocd", nil, &managed); err != nil {
			return err
		}
		i := slices.IndexFunc(managed.Items, func(r struct{ Kind, NormalizedLiveState, PredictedLiveState string }) bool {
			return r.Kind == "ConfigMap"
		})
		if i < 0 {
			return fmt.Errorf("it has no ConfigMap: %+v", managed)
		}
		if is, wanted := managed.Items[i].NormalizedLiveState, managed.Items[i].PredictedLiveState; !strings.Contains(is, "changed by hand") ||
			!strings.Contains(wanted, `"greeting":"hello"`) {
			return fmt.Errorf("there is %s, and is to be %s", is, wanted)
		}
		return nil
	})
}

// showsLogs has a container write a line, which is shown.
func (s *shown) showsLogs(t *testing.T, pod string) {
	t.Helper()
	text := "said " + rand.Text()
	if err := s.containers.Log.Say(text); err != nil {
		t.Fatal(err)
	}
	query := url.Values{"appNamespace": {harness.ArgoCDNamespace}, "namespace": {shownApp}, "podName": {pod}, "container": {shownApp}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.api.Base+"applications/"+shownApp+"/logs?"+query.Encode(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.api.Token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }() // read to its end
	if said, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(said), text) {
		t.Errorf("the log of %s is %s %q, %v", pod, res.Status, said, err)
	}
}

// secretOf is a value of a Secret of Argo CD.
func secretOf(t *testing.T, c *harness.ControlPlane, name, key string) string {
	t.Helper()
	secret, err := c.Resource(env.Secrets, harness.ArgoCDNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	encoded, _, _ := unstructured.NestedString(secret.Object, "data", key)
	value, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(value) == 0 {
		t.Fatalf("Secret %s has %q as %s, %v", name, value, key, err)
	}
	return string(value)
}

// through is an address of this machine that leads to a port of a pod until the test ends, by TLS unless config is nil.
func through(t *testing.T, n *kubelet.Node, name string, port int, config *tls.Config) (address string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // Accept says so
		defer stop()
		var open sync.WaitGroup
		defer open.Wait()
		for {
			from, err := l.Accept()
			if err != nil {
				if ctx.Err() != nil {
					err = nil
				}
				return err
			}
			open.Go(func() { leadTo(ctx, from, n, name, port, config) })
		}
	})
	return l.Addr().String()
}

// leadTo passes on what comes from either end, until one of them ends.
func leadTo(ctx context.Context, from net.Conn, n *kubelet.Node, name string, port int, config *tls.Config) {
	to, err := n.Dial(ctx, name, port)
	if err != nil {
		_ = from.Close() // who asks sees that
		return
	}
	if config != nil {
		to = tls.Client(to, config)
	}
	end := func() { _ = errors.Join(from.Close(), to.Close()) } // either end sees that
	stop := context.AfterFunc(ctx, end)
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(to, from); end() })
	both.Go(func() { _, _ = io.Copy(from, to); end() })
	both.Wait()
}
