//go:build linux

package install

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/test/e2e/internal/charts"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
)

// writes counts what a command writes to API servers, by way of proxies before them.
type writes struct {
	n    int64 // the write that closes at
	end  bool  // from that one on nothing is answered
	is   func(*http.Request) bool
	at   chan struct{}
	done atomic.Int64
}

// endsAt returns a kubeconfig to proxies before API servers that answer no more once they have passed on n writes, all
// together, and a channel that is closed then: an API server has taken the last one, and who wrote it does not know.
func endsAt(t *testing.T, n int64, clusters ...*harness.ControlPlane) (kubeconfig string, reached <-chan struct{}) {
	t.Helper()
	return proxied(t, n, true, clusters...)
}

// proxied is endsAt; without end it goes on answering.
func proxied(t *testing.T, n int64, end bool, clusters ...*harness.ControlPlane) (kubeconfig string, reached <-chan struct{}) {
	t.Helper()
	return (&writes{n: n, end: end, is: staysWritten, at: make(chan struct{})}).proxies(t, clusters...)
}

// proxies starts one before the API server of each cluster.
func (w *writes) proxies(t *testing.T, clusters ...*harness.ControlPlane) (kubeconfig string, reached <-chan struct{}) {
	t.Helper()
	servers := map[string]string{}
	for _, c := range clusters {
		servers[c.Name] = w.before(t, c)
	}
	return kubeconfigOf(t, servers, clusters[0].Name), w.at
}

// staysWritten reports whether a request writes something that stays.
func staysWritten(r *http.Request) bool {
	return r.Method != http.MethodGet && r.URL.Query().Get("dryRun") == "" && !strings.Contains(r.URL.Path, "/leases") &&
		!strings.Contains(r.URL.Path, "reviews")
}

// before starts a proxy before the API server of a cluster, and returns its address.
func (w *writes) before(t *testing.T, c *harness.ControlPlane) string {
	t.Helper()
	return proxyBefore(t, c, func(res *http.Response) error {
		if !w.is(res.Request) {
			return nil
		}
		now := w.done.Add(1)
		if now == w.n {
			close(w.at)
		}
		if now < w.n || !w.end {
			return nil
		}
		<-res.Request.Context().Done() // until the client is gone
		return errors.New("the client was ended")
	})
}

// proxyBefore starts a proxy before the API server of a cluster that has each answer be changed, and returns its
// address.
func proxyBefore(t *testing.T, c *harness.ControlPlane, change func(*http.Response) error) string {
	t.Helper()
	config := c.REST()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      transport,
		ModifyResponse: change,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) {},
	})
	t.Cleanup(server.Close)
	return server.URL
}

// throughProxy returns a kubeconfig to a proxy before an API server that has each answer be changed.
func throughProxy(t *testing.T, c *harness.ControlPlane, change func(*http.Response) error) (kubeconfig string) {
	t.Helper()
	return kubeconfigOf(t, map[string]string{c.Name: proxyBefore(t, c, change)}, c.Name)
}

// kubeconfigOf writes a kubeconfig of the addresses of clusters by their names, which are those of its contexts.
func kubeconfigOf(t *testing.T, servers map[string]string, current string) string {
	t.Helper()
	config := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{}, Contexts: map[string]*clientcmdapi.Context{}, CurrentContext: current,
	}
	for name, server := range servers {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: server}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// killed starts cmd and kills it once reached is closed. It returns false when cmd ended before.
func killed(t *testing.T, cmd *exec.Cmd, reached <-chan struct{}) bool {
	t.Helper()
	_, was := signalled(t, cmd, reached, os.Kill)
	return was
}

// signalled starts cmd, sends it a signal once reached is closed, and returns what it said. It returns
// false when cmd ended before.
func signalled(t *testing.T, cmd *exec.Cmd, reached <-chan struct{}, s os.Signal) (said string, was bool) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-reached:
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err == nil {
			t.Fatalf("%s ended well after %s", cmd, s)
		}
		return out.String(), true
	case err := <-done:
		if err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out.String())
		}
		return out.String(), false
	}
}

// killedOnceIn runs agentctl against clusters and kills it after so many writes. It returns false when it ended before.
func killedOnceIn(t *testing.T, n int64, clusters []*harness.ControlPlane, args ...string) bool {
	t.Helper()
	kubeconfig, reached := endsAt(t, n, clusters...)
	return killed(t, exec.CommandContext(t.Context(), agentctlBinary(t), append([]string{"--kubeconfig", kubeconfig}, args...)...), reached)
}

// killedAtItsRecord runs an uninstall and kills it when Helm has forgotten the newest revision of the release.
func killedAtItsRecord(t *testing.T, c *harness.ControlPlane, chart string, args ...string) {
	t.Helper()
	record := fmt.Sprintf("/secrets/sh.helm.release.v1.%s.v%d", chart, len(helmHistory(t, c, chart)))
	kubeconfig, reached := (&writes{n: 1, end: true, at: make(chan struct{}), is: func(r *http.Request) bool {
		return r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, record)
	}}).proxies(t, c)
	if !killed(t, exec.CommandContext(t.Context(), agentctlBinary(t), append([]string{"--kubeconfig", kubeconfig}, args...)...), reached) {
		t.Errorf("%q never removed %s", args, record)
	}
}

// killable are commands that install, upgrade and remove one side, of a cluster that is both sides.
type killable struct {
	c                  *harness.ControlPlane
	chart, says        string // what an install says at its end
	install, uninstall []string
	upgrade            func(n int64) []string
}

// finished runs a command that was killed after a write again, which has to finish it, and then once more, which has to
// change nothing.
func (k *killable) finished(t *testing.T, n int64, args ...string) {
	t.Helper()
	if out := must(t, k.c.Kubeconfig, append(slices.Clone(args), "--dry-run")...); strings.Contains(out, "deleted") {
		t.Errorf("after write %d a dry run says that something goes:\n%s", n, out)
	}
	out := must(t, k.c.Kubeconfig, args...)
	history := helmHistory(t, k.c, k.chart)
	if history[len(history)-1] != "deployed" || !strings.Contains(out, k.says) {
		t.Errorf("after write %d: helm's history is %q, and the second run printed\n%s", n, history, out)
	}
	before := revisions(t, k.c)
	must(t, k.c.Kubeconfig, args...)
	if diff := cmp.Diff(before, revisions(t, k.c)); diff != "" {
		t.Errorf("after write %d a third run changed (-before +after):\n%s", n, diff)
	}
}

// isKilled kills an install, an uninstall and an upgrade after each of so many writes; without any, after every one.
func (k *killable) isKilled(t *testing.T, at ...int64) {
	t.Helper()
	all := []*harness.ControlPlane{k.c}
	each := func(try func(n int64) bool) {
		t.Helper()
		if len(at) == 0 {
			n := int64(1)
			for try(n) {
				n++
			}
			return
		}
		for _, n := range at {
			if !try(n) {
				t.Errorf("it was done before write %d", n)
			}
		}
	}
	each(func(n int64) bool {
		was := killedOnceIn(t, n, all, k.install...)
		k.finished(t, n, k.install...)
		must(t, k.c.Kubeconfig, k.uninstall...)
		return was
	})
	each(func(n int64) bool {
		must(t, k.c.Kubeconfig, k.install...)
		was := killedOnceIn(t, n, all, k.uninstall...)
		must(t, k.c.Kubeconfig, k.uninstall...)
		if out := must(t, k.c.Kubeconfig, k.uninstall...); !strings.Contains(out, "is not installed") {
			t.Errorf("after write %d of an uninstall a third one says %s", n, out)
		}
		return was
	})
	must(t, k.c.Kubeconfig, k.install...)
	each(func(n int64) bool {
		was := killedOnceIn(t, n, all, k.upgrade(n)...)
		k.finished(t, n, k.upgrade(n)...)
		return was
	})
}

// hubIsKilled is isKilled of the hub; and what Ctrl-C does, while the API server answers.
func hubIsKilled(t *testing.T, c *harness.ControlPlane, at ...int64) {
	t.Helper()
	k := &killable{
		c: c, chart: charts.Principal, says: "1 of 1 pods are ready", install: hubArgs, uninstall: []string{"hub", "uninstall", "--yes"},
		upgrade: func(n int64) []string {
			return append(slices.Clone(hubArgs), "--set", fmt.Sprintf("podLabels.n=v%d", n))
		},
	}
	k.isKilled(t, at...)
	const third = 3
	upgrade := append(slices.Clone(hubArgs), "--set", "podLabels.n=interrupted")
	kubeconfig, reached := proxied(t, third, false, c)
	cmd := exec.CommandContext(t.Context(), agentctlBinary(t), append([]string{"--kubeconfig", kubeconfig}, upgrade...)...)
	if said, was := signalled(t, cmd, reached, os.Interrupt); !was || !strings.Contains(said, "signal: interrupt: run the same command again") {
		t.Errorf("after Ctrl-C it says\n%s", said)
	}
	k.finished(t, third, upgrade...)
}

// spokeIsKilled is isKilled of a spoke that is registered with the hub and with SPIRE, and whose way to the principal
// is tried. Hub and spoke are one cluster, with Argo CD and the resources of SPIRE.
func spokeIsKilled(t *testing.T, c *harness.ControlPlane, at ...int64) {
	t.Helper()
	stockArgoCD(t, c)
	withSPIRE(t, c)
	must(t, c.Kubeconfig, append(slices.Clone(hubArgs), "--trust-domain", "hub.example", "--set", "service.type=LoadBalancer")...)
	balance(t, c, "hub.example")
	podsSay(t, c, foundOnPath(t, "hub.example:443", "ok", "is reached, and shows a certificate of "+env.PrincipalID, ""))
	connects(t, c)
	install := []string{
		"spoke", "install", "edge-1", "--hub-context", c.Name, "--registry", registry, "--trust-domain", "edge.example", "--timeout", "2m",
	}
	k := &killable{
		c: c, chart: charts.Agent, says: "agent edge-1 is connected to the hub", install: install,
		uninstall: []string{"spoke", "uninstall", "--yes"},
		upgrade: func(n int64) []string {
			return append(slices.Clone(install), "--set", fmt.Sprintf("podLabels.n=v%d", n))
		},
	}
	k.isKilled(t, at...)
	ids, err := c.Resource(spire.Resource(spire.ClusterSPIFFEIDKind), "").List(t.Context(),
		metav1.ListOptions{LabelSelector: spire.RegistrationLabel + "=edge-1"})
	if err != nil || len(ids.Items) != 1 {
		t.Errorf("after all that edge-1 has %d registrations, %v", len(ids.Items), err)
	}
}

// connects has the hub say of agent edge-1, as soon as it is registered, that it is connected.
func connects(t *testing.T, c *harness.ControlPlane) {
	t.Helper()
	agents := c.Resource(env.Agents, harness.ArgoCDNamespace)
	seen, err := agents.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { seen.Stop(); <-done })
	go func() {
		defer close(done)
		for e := range seen.ResultChan() {
			o, is := e.Object.(*unstructured.Unstructured)
			if !is || e.Type == watch.Deleted {
				continue
			}
			if connected, _, _ := unstructured.NestedBool(o.Object, "status", "connected"); connected {
				continue
			}
			_, err := agents.Patch(t.Context(), o.GetName(), types.MergePatchType, []byte(connectedStatus), metav1.PatchOptions{}, "status")
			if err != nil && t.Context().Err() == nil {
				t.Error(err)
			}
		}
	}()
}

// connectedStatus is what a principal says of an agent with which all is well.
const connectedStatus = `{"status":{"connected":true,"summary":"Connected","since":"2026-11-29T00:00:00Z","versions":{"agent":"v0.1.0"},"conditions":[
{"type":"Ready","status":"True","reason":"Ready","message":"","lastTransitionTime":"2026-11-29T00:00:00Z"},
{"type":"Connected","status":"True","reason":"Connected","message":"","lastTransitionTime":"2026-11-29T00:00:00Z"}]}}`

// isKilledAgainAndAgain runs a command, each time killed after one write more than before, until it ends by itself.
// What it leaves then is as if it had run once: another run writes nothing.
func isKilledAgainAndAgain(t *testing.T, clusters []*harness.ControlPlane, args ...string) {
	t.Helper()
	n := int64(1)
	for killedOnceIn(t, n, clusters, args...) {
		n++
	}
	t.Logf("it ended by itself when it was to be killed after write %d", n)
	const fewest = 4
	if n < fewest {
		t.Errorf("it was killed %d times", n-1)
	}
	kubeconfig, reached := proxied(t, 1, false, clusters...)
	must(t, kubeconfig, args...)
	select {
	case <-reached:
		t.Errorf("%q writes although nothing is missing", args)
	default:
	}
}
