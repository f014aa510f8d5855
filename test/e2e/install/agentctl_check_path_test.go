//go:build linux

package install

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
	"github.com/argomesh/argomesh/test/kit"
	"github.com/argomesh/argomesh/test/kit/certkit"
)

// paths are ways to a principal on which something is wrong, by the word that says so: where an address leads, and
// where it leads once it is mended. "" is nowhere.
var paths = map[string]struct {
	broken, mended func(*testing.T, *env.Bare) string
	args           []string
	cure           string // what the finding says of what is mended
}{
	"PrincipalUnreachable": {broken: func(*testing.T, *env.Bare) string { return "" }, mended: toPrincipal, cure: "Open the way for TCP from the spoke to that address"},
	"NoTLS":                {broken: func(_ *testing.T, w *env.Bare) string { return w.ByToken }, mended: toPrincipal, cure: "Name the port of the principal's stream"},
	"TLSEnded":             {broken: balancer, mended: toPrincipal, cure: "Have it pass TCP through"},
	"NoGRPC": {broken: func(t *testing.T, _ *env.Bare) string {
		t.Helper()
		s := httptest.NewTLSServer(http.NotFoundHandler()) // of HTTP/1.1
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}, mended: balancer, args: []string{"--gateway"}, cure: "switch HTTP/2 on there"},
	"OtherPrincipal": {broken: func(t *testing.T, w *env.Bare) string {
		t.Helper()
		return env.StartTerminator(t, env.HostileLeaf(t, w, env.SPIFFEID("elsewhere")), w.ByToken)
	}, mended: toPrincipal, cure: "Set `principal.address` and `principal.spiffe_ids` of the agent to those of one and the same hub"},
}

// toPrincipal leads to a principal that runs.
func toPrincipal(_ *testing.T, w *env.Bare) string { return w.Principal.Address }

// balancer terminates TLS before the principal, with a certificate of its own.
func balancer(t *testing.T, w *env.Bare) string {
	t.Helper()
	web := certkit.New(t, x509.Certificate{DNSNames: []string{"hub.example"}})
	return env.StartTerminator(t, tls.Certificate{Certificate: [][]byte{web.Certificate.Raw}, PrivateKey: web.Key}, w.ByToken)
}

// door is an address that leads to another one, as that of a load balancer does.
type door struct {
	address string
	shut    func()
}

// leadTo has it lead to a target; "" to none, so that nothing listens.
func (d *door) leadTo(t *testing.T, target string) {
	t.Helper()
	d.shut()
	d.shut = func() {}
	if target == "" {
		return
	}
	proxy, err := harness.NewProxy(harness.ProxyConfig{Target: target, Listen: d.address})
	if err != nil {
		t.Fatal(err)
	}
	d.shut = kit.Background(t, proxy.Run)
}

// Each thing that can be wrong on the way to a principal is found alone, with its cure and exit code, and not once it
// was mended.
func TestAgentctlCheckPath(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver")
	w := env.SharedBare(t)
	for word, path := range paths {
		t.Run(word, func(t *testing.T) {
			address, err := w.Harness.Address()
			if err != nil {
				t.Fatal(err)
			}
			way := &door{address: address, shut: func() {}}
			none := filepath.Join(t.TempDir(), "kubeconfig") // no cluster is asked
			args := append([]string{"path", address, "--principal-id", env.PrincipalID}, path.args...)
			way.leadTo(t, path.broken(t, w))
			found, code := checked(t, none, args...)
			if len(found) != 1 || found[0].Word != word || found[0].Level != "problem" || found[0].Side != "spoke" || !strings.Contains(found[0].Cure, path.cure) ||
				!strings.Contains(found[0].See, "docs/reference/errors.md#") || code != 1 {
				t.Errorf("found are %+v, exit code %d", found, code)
			}
			way.leadTo(t, path.mended(t, w))
			if found, code := checked(t, none, args...); len(found) > 0 || code != 0 {
				t.Errorf("once it is mended found are %+v, exit code %d", found, code)
			}
		})
	}
}
