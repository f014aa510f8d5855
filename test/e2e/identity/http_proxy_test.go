//go:build linux

package identity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// hubBehindProxy is the hub's address as the agent has it; no DNS knows it but the proxy's.
const hubBehindProxy = "hub.argomesh.test:8443"

// connectProxy is an HTTP proxy that passes CONNECT (RFC 9110, section 9.3.6) to one target.
type connectProxy struct {
	target string

	mu      sync.Mutex // guards what follows
	refuses bool
	asked   []string // targets of CONNECT
	open    map[net.Conn]struct{}
}

func (p *connectProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, r.Method+" "+r.Host)
	refuses := p.refuses
	p.mu.Unlock()
	if r.Method != http.MethodConnect || r.Host != hubBehindProxy || refuses {
		http.Error(w, "log in first", http.StatusProxyAuthRequired)
		return
	}
	var dialer net.Dialer
	up, err := dialer.DialContext(r.Context(), "tcp", p.target)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer up.Close() //nolint:errcheck // it is done with
	down, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer down.Close() //nolint:errcheck // it is done with
	p.mu.Lock()
	p.open[down] = struct{}{}
	p.mu.Unlock()
	if _, err := io.WriteString(down, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	ended := make(chan struct{}, 2) // one half ends both
	half := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from) // however it ended
		ended <- struct{}{}
	}
	go half(up, buffered)
	go half(down, up)
	<-ended
}

// end ends what is open, and says whether what comes then is refused.
func (p *connectProxy) end(refuses bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = refuses
	var problems []error
	for c := range p.open {
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			problems = append(problems, err)
		}
	}
	clear(p.open)
	return errors.Join(problems...)
}

func (p *connectProxy) connects() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

// startConnectProxy serves until the test ends, and returns the proxy and its address.
func startConnectProxy(t *testing.T, target string) (p *connectProxy, address string) {
	t.Helper()
	p = &connectProxy{target: target, open: map[net.Conn]struct{}{}}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(server.Close(), p.end(true)); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return p, l.Addr().String()
}

// The way out of many spokes is an HTTP proxy. TLS goes through it from end to end, so that it
// sees the address of the hub and no more; a connection that it ends comes back; and one that
// it refuses is told.
func TestAgentBehindAnHTTPProxy(t *testing.T) {
	t.Parallel()
	harnesstest.SkipMissing(t, "etcd", "kube-apiserver")
	ctx, w := t.Context(), env.SharedBare(t)
	proxy, address := startConnectProxy(t, w.Principal.Address)
	r := w.Register(t, "behind-a-proxy", "managed")
	identity, err := w.Identify(ctx, env.SPIFFEID(r.Name))
	if err != nil {
		t.Fatal(err)
	}
	agent, err := w.Harness.StartAgent(ctx, harness.AgentConfig{
		Name: r.Name, Mode: r.Mode, ControlPlane: w.Spoke, WorkloadAPI: identity,
		PrincipalAddress: hubBehindProxy, PrincipalIDs: []string{env.PrincipalID},
		Settings: harness.Settings{"namespace": r.Namespace}, Env: []string{"HTTPS_PROXY=http://" + address},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := agent.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	connected := func(want bool) {
		t.Helper()
		env.Eventually(t, fmt.Sprintf("connected %t", want), func() error { return r.Connected(ctx, want) })
	}
	connected(true)
	flows(t, r, "first")
	asked := proxy.connects()
	if len(asked) == 0 || slices.ContainsFunc(asked, func(s string) bool { return s != "CONNECT "+hubBehindProxy }) {
		t.Errorf("the proxy was asked for %q", asked)
	}

	if err := proxy.end(true); err != nil {
		t.Fatal(err)
	}
	connected(false)
	env.Eventually(t, "the agent says why", func() error {
		return logged(agent.LogFile(), 0, "407 Proxy Authentication Required")
	})
	if err := proxy.end(false); err != nil {
		t.Fatal(err)
	}
	connected(true)
	flows(t, r, "second")
}
