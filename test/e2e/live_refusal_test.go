//go:build linux

package e2e

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

	"github.com/argomesh/argomesh/test/harness"
)

// Each side refuses by its own rules, and kubectl shows who did, and why.
func TestLiveRefusals(t *testing.T) {
	t.Parallel()
	w := theLiveWorld(t)
	with := func(more map[string]any) map[string]any {
		all := map[string]any{"enabled": true, "writes": true}
		for key, value := range more {
			all[key] = value
		}
		return all
	}
	a := w.agent(t, "refuses",
		with(map[string]any{"exec": true}), with(map[string]any{"secrets": true, "impersonate": []any{"somebody"}}))
	c := a.caller(t)
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
			[]string{"exec", livePod, "--", "true"},
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
			mine.t = t
			mine.refused("", call.says, call.args...)
			record := w.recorded(t, a.name, map[string]any{"decision": "deny", "rule": call.rule, "decided_by": call.side, "status": 403})
			if record["source"] == "" || record["token_id"] == nil || record["subject"] != a.name {
				t.Errorf("the record does not say who asked: %v", record)
			}
		})
	}
	t.Run("the token of another agent", func(t *testing.T) {
		other := rest.CopyConfig(c.config)
		other.Host = strings.Replace(c.config.Host, "/agents/"+a.name, "/agents/"+managed, 1)
		r, err := fetchOne(t.Context(), other, "/version")
		if err != nil || r.status != http.StatusForbidden || !strings.Contains(string(r.body), `"kind":"Status"`) {
			t.Errorf("%d %s %v", r.status, r.body, err)
		}
	})
	t.Run("no token", func(t *testing.T) {
		nobody := rest.CopyConfig(c.config)
		nobody.BearerToken = ""
		r, err := fetchOne(t.Context(), nobody, "/version")
		if err != nil || r.status != http.StatusUnauthorized || !strings.Contains(string(r.body), `"kind":"Status"`) {
			t.Errorf("%d %s %v", r.status, r.body, err)
		}
	})
	t.Run("an agent that does not serve", func(t *testing.T) {
		name := "serves-nothing"
		if _, err := w.h.Agentctl(t.Context(), w.hub, "agent", "create", name, "--mode", "managed", "--spiffe-id", idOf(name), "--wait"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := w.hub.Resource(agents, harness.ArgoCDNamespace).Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
		silent := &liveAgent{w: w, name: name, spoke: a.spoke}
		if err := silent.allow(t.Context(), everything); err != nil {
			t.Fatal(err)
		}
		c := silent.caller(t)
		eventually(t, "the hub says so", func() error {
			r, err := fetchOne(t.Context(), c.config, "/api/v1/namespaces/default/pods")
			if err == nil && (r.status != http.StatusServiceUnavailable || !strings.Contains(string(r.body), "is not connected")) {
				err = fmt.Errorf("%d %s", r.status, r.body)
			}
			return err
		})
	})
}

// A caller who never reads and a spoke that never stops cost what their own windows
// hold, and nobody else's time.
func TestLiveStuck(t *testing.T) {
	t.Parallel()
	w := theLiveWorld(t)
	a := w.agents[managed]
	c := a.caller(t)
	// 20 MiB to list.
	const namespace = "stuck"
	if err := a.spoke.EnsureNamespace(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	maps := a.direct(t).clients().CoreV1().ConfigMaps(namespace)
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
	begun := c.begun(t, map[string]any{"verb": "get", "resource": "pods", "subresource": "exec"})
	for range stuck {
		res, err := begin(t.Context(), c.config, "/api/v1/namespaces/"+namespace+"/configmaps")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = res.Body.Close() }) // never read
	}
	// An exec whose output nobody reads and that never ends.
	endless := c.exec("cat", "/dev/zero")
	begun()
	select {
	case err := <-endless.ended:
		t.Fatalf("the endless exec ended: %v", err)
	default:
	}
	for _, p := range []*harness.Process{w.door.Process, a.Process, w.door.Envoy.Process} {
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
		text := c.run("", "get", "pod", livePod, "-o", "name")
		if text != "pod/"+livePod+"\n" {
			t.Errorf("it says %q", text)
		}
		t.Logf("kubectl get beside them took %v", time.Since(begin))
	}
	watch := c.follow("/api/v1/namespaces/" + namespace + "/configmaps?watch=true&fieldSelector=metadata.name%3Dbeside")
	if err := w.log.say("beside " + rand.Text()); err != nil {
		t.Fatal(err)
	}
	c.run("", "create", "configmap", "beside", "--namespace="+namespace)
	watch.until(t, `"ADDED"`)
}

// Whoever begins a call and does not bring it to its end is not waited for.
func TestLiveHalfOpen(t *testing.T) {
	t.Parallel()
	w := theLiveWorld(t)
	c := w.agents[managed].caller(t)
	conn, err := c.dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, path, _ := strings.Cut(c.config.Host, "/agents/")
	if _, err := fmt.Fprintf(conn, "POST /agents/%s/api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
		path, c.config.BearerToken); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
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
	w.recorded(t, managed, map[string]any{"verb": "create", "resource": "configmaps", "status": 408, "result": "caller-gone"})
}
