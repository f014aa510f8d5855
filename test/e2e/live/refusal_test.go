//go:build linux

package live

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// Each side refuses by its own rules, and kubectl shows who did, and why.
func TestLiveRefusals(t *testing.T) {
	t.Parallel()
	w := env.SharedLive(t)
	with := func(more map[string]any) map[string]any {
		all := map[string]any{"enabled": true, "writes": true}
		for key, value := range more {
			all[key] = value
		}
		return all
	}
	a := w.Agent(t, "refuses",
		with(map[string]any{"exec": true}), with(map[string]any{"secrets": true, "impersonate": []any{"somebody"}}))
	c := a.Caller(t)
	for name, call := range map[string]struct {
		args []string
		says []string
		rule string
		side string
	}{
		"the hub": {
			[]string{"get", "secrets", "--namespace=default"},
			[]string{"Forbidden", `refused by the hub, rule "secrets"`, "spec.access.secrets: masked of the Agent shows them without their values"}, "secrets", "hub",
		},
		"the spoke": {
			[]string{"exec", env.LivePod, "--", "true"},
			[]string{`refused by the spoke, rule "exec"`, "set access.exec in the agent's configuration"}, "exec", "spoke",
		},
		"both": {
			[]string{"get", "nodes"},
			[]string{"Forbidden", `refused by the hub, rule "nodes"`}, "nodes", "hub",
		},
		"a kind that is not common": {
			[]string{"create", "namespace", "x"},
			[]string{"Forbidden", `refused by the hub, rule "deny-by-default"`}, "deny-by-default", "hub",
		},
		"another user": {
			[]string{"get", "--raw", "/api/v1/namespaces/default/configmaps", "--as=somebody"}, // without discovery, which is refused too
			[]string{"Forbidden", `refused by the hub, rule "impersonation"`}, "impersonation", "hub",
		},
		"a path that is no object": {
			[]string{"get", "--raw", "/metrics"},
			[]string{"Forbidden", `refused by the hub, rule "non-resource-paths"`}, "non-resource-paths", "hub",
		},
	} {
		t.Run(name, func(t *testing.T) {
			mine := *c
			mine.T = t
			mine.Refused("", call.says, call.args...)
			record := w.Recorded(t, a.Name, map[string]any{"decision": "deny", "rule": call.rule, "decided_by": call.side, "status": 403})
			if record["source"] == "" || record["token_id"] == nil || record["subject"] != a.Name {
				t.Errorf("the record does not say who asked: %v", record)
			}
		})
	}
	t.Run("the token of another agent", func(t *testing.T) {
		other := rest.CopyConfig(c.Config)
		other.Host = strings.Replace(c.Config.Host, "/agents/"+a.Name, "/agents/"+env.Managed, 1)
		r, err := env.FetchOne(t.Context(), other, "/version")
		if err != nil || r.Status != http.StatusForbidden || !strings.Contains(string(r.Body), `"kind":"Status"`) {
			t.Errorf("%d %s %v", r.Status, r.Body, err)
		}
	})
	t.Run("no token", func(t *testing.T) {
		nobody := rest.CopyConfig(c.Config)
		nobody.BearerToken = ""
		r, err := env.FetchOne(t.Context(), nobody, "/version")
		if err != nil || r.Status != http.StatusUnauthorized || !strings.Contains(string(r.Body), `"kind":"Status"`) {
			t.Errorf("%d %s %v", r.Status, r.Body, err)
		}
	})
	t.Run("an agent that does not serve", func(t *testing.T) {
		name := "serves-nothing"
		if _, err := w.Harness.Agentctl(t.Context(), w.Hub, "agent", "create", name, "--mode", "managed", "--spiffe-id", env.SPIFFEID(name), "--wait"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := w.Hub.Resource(env.Agents, harness.ArgoCDNamespace).Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
		silent := &env.LiveAgent{Env: w, Name: name, Spoke: a.Spoke}
		if err := silent.Allow(t.Context(), env.Everything); err != nil {
			t.Fatal(err)
		}
		c := silent.Caller(t)
		env.Eventually(t, "the hub says so", func() error {
			r, err := env.FetchOne(t.Context(), c.Config, "/api/v1/namespaces/default/pods")
			if err == nil && (r.Status != http.StatusServiceUnavailable || !strings.Contains(string(r.Body), "is not connected")) {
				err = fmt.Errorf("%d %s", r.Status, r.Body)
			}
			return err
		})
	})
}

// A caller who never reads and a spoke that never stops cost what their own windows
// hold, and no one else's time.
func TestLiveStuck(t *testing.T) {
	t.Parallel()
	w := env.SharedLive(t)
	a := w.Agents[env.Managed]
	c := a.Caller(t)
	// 20 MiB to list.
	const namespace = "stuck"
	if err := a.Spoke.EnsureNamespace(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	maps := a.Direct(t).Clients().CoreV1().ConfigMaps(namespace)
	for i := range 24 {
		if _, err := maps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("stuck-", i)}, Data: map[string]string{"key": strings.Repeat("x", 900<<10)},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := maps.DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})
	const stuck = 16
	begun := begun(t, c, map[string]any{"verb": "get", "resource": "pods", "subresource": "exec"})
	for range stuck {
		res, err := env.OpenStream(t.Context(), c.Config, "/api/v1/namespaces/"+namespace+"/configmaps")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = res.Body.Close() }) // never read
	}
	// An exec whose output no one reads and that never ends.
	endless := execAs(c, "cat", "/dev/zero")
	begun()
	select {
	case err := <-endless.ended:
		t.Fatalf("the endless exec ended: %v", err)
	default:
	}
	for _, p := range []*harness.Process{w.FrontDoor.Process, a.Process, w.FrontDoor.Envoy.Process} {
		memory, err := p.Memory()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s has %d MiB with %d callers that never read", p.Name(), memory>>20, stuck+1)
		// 16 answers of 21 MiB would be 336.
		if memory > 250<<20 {
			t.Errorf("%s has %d MiB", p.Name(), memory>>20)
		}
	}
	for range 3 {
		begin := time.Now()
		text := c.Run("", "get", "pod", env.LivePod, "-o", "name")
		if text != "pod/"+env.LivePod+"\n" {
			t.Errorf("it says %q", text)
		}
		t.Logf("kubectl get beside them took %v", time.Since(begin))
	}
	watch := c.Follow("/api/v1/namespaces/" + namespace + "/configmaps?watch=true&fieldSelector=metadata.name%3Dbeside")
	if err := w.Log.Say("beside " + rand.Text()); err != nil {
		t.Fatal(err)
	}
	c.Run("", "create", "configmap", "beside", "--namespace="+namespace)
	watch.Until(t, `"ADDED"`)
}

// Anyone who begins a call and does not bring it to its end is not waited for.
func TestLiveHalfOpen(t *testing.T) {
	t.Parallel()
	w := env.SharedLive(t)
	c := w.Agents[env.Managed].Caller(t)
	conn, err := c.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, path, _ := strings.Cut(c.Config.Host, "/agents/")
	if _, err := fmt.Fprintf(conn, "POST /agents/%s/api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
		path, c.Config.BearerToken); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(env.Patience)); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body) // as much of it as came
	_ = res.Body.Close()
	if res.StatusCode != http.StatusRequestTimeout {
		t.Errorf("half a call is answered %s: %s", res.Status, body)
	}
	w.Recorded(t, env.Managed, map[string]any{"verb": "create", "resource": "configmaps", "status": 408, "result": "caller-gone"})
}
