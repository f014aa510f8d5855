//go:build linux

package envoy

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/identity/header"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
	streamcall "github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/server"
	"github.com/argomesh/argomesh/stream/tunnel"
	"github.com/argomesh/argomesh/stream/tunnel/acceptor"
	"github.com/argomesh/argomesh/stream/tunnel/dialer"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
	"github.com/argomesh/argomesh/test/kit"
)

// tunnelEnv is a principal's server with nothing but tunnels, behind a gateway that
// terminates the TLS of its agents edge-1 and edge-2. Only Envoy is a process.
type tunnelEnv struct {
	t       *testing.T
	name    string // of its test
	h       *harness.Harness
	dialer  *dialer.Dialer
	metrics *prometheus.Registry // of dialer
	gateway *harness.Process
	admin   string // of gateway
	address string // where agents connect to gateway
}

// envLabel is the label of the goroutines of a tunnelEnv, which is its test's name.
const envLabel = "tunnel-env"

// throughEnvoy runs a test once with the limits that an Envoy has by itself, and once
// with as many streams of a connection as many an operator allows, on both of its sides.
func throughEnvoy(t *testing.T, test func(*tunnelEnv)) {
	t.Parallel()
	for name, limits := range map[string]map[string]any{
		"limits of its own": {}, "100 streams of a connection": {"max_concurrent_streams": 100},
	} {
		t.Run(name, func(t *testing.T) {
			// What these start has the label, too: other tests run beside them.
			pprof.Do(t.Context(), pprof.Labels(envLabel, t.Name()), func(context.Context) { test(newTunnelEnv(t, limits)) })
		})
	}
}

func newTunnelEnv(t *testing.T, limits map[string]any) *tunnelEnv {
	t.Helper()
	harnesstest.SkipMissing(t, "envoy")
	w := &tunnelEnv{t: t, name: t.Name(), h: harnesstest.New(t), metrics: prometheus.NewRegistry()}
	w.admin = "unix://" + w.h.Path("admin.sock")
	var err error
	// What waits, waits as long as it takes on a busy machine.
	cfg := dialer.Config{SpareTimeout: env.Patience, AnswerTimeout: env.Patience, Silence: env.Patience, Metrics: w.metrics, Log: w.log()}
	if w.dialer, err = dialer.New(cfg); err != nil {
		t.Fatal(err)
	}
	w.serve(w.h.Path("stream.sock"))
	port, err := w.h.Port()
	if err != nil {
		t.Fatal(err)
	}
	w.address = fmt.Sprint("127.0.0.1:", port)
	config, err := json.Marshal(gatewayConfig(w.admin, port, w.identify(env.GatewayID), "unix://"+w.h.Path("stream.sock"), limits))
	if err != nil {
		t.Fatal(err)
	}
	file := w.h.Path("gateway.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	w.gateway, err = w.h.StartEnvoy(t.Context(), harness.EnvoyConfig{Name: "gateway", File: file, AdminAddress: w.admin})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// in is w for a subtest.
func (w *tunnelEnv) in(t *testing.T) *tunnelEnv {
	v := *w
	v.t = t
	return &v
}

func (w *tunnelEnv) log() zerolog.Logger {
	return zerolog.New(zerolog.NewTestWriter(w.t)).Level(zerolog.InfoLevel)
}

// identify runs a Workload API server of one identity, and returns its address.
func (w *tunnelEnv) identify(id string) string {
	w.t.Helper()
	api, err := devworkload.New(devworkload.Config{
		TrustDomain: spiffeid.RequireTrustDomainFromString(env.TrustDomain), CADir: w.h.Path("ca"),
		Entries: []devworkload.Entry{{ID: spiffeid.RequireFromString(id)}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	socket := w.h.Path(id[strings.LastIndex(id, "/")+1:] + "-api.sock")
	l, err := devworkload.Listen(w.t.Context(), socket, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	kit.Background(w.t, func(ctx context.Context) error { return api.Run(ctx, l) })
	return "unix://" + socket
}

func (w *tunnelEnv) source(id string) *workload.Source {
	w.t.Helper()
	s, err := workload.New(workload.Config{Socket: w.identify(id), JWTBundles: true, Metrics: prometheus.NewRegistry()})
	if err != nil {
		w.t.Fatal(err)
	}
	kit.Background(w.t, s.Run)
	if err := s.WaitReady(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// serve runs the principal's server at a socket, as one does that takes the word of the
// proxy in front of it.
func (w *tunnelEnv) serve(socket string) {
	w.t.Helper()
	registry := &fleet.Registry{}
	var registered []v1alpha1.Agent
	for _, name := range []string{env.Managed, env.Autonomous} {
		a := v1alpha1.Agent{}
		a.Name, a.Spec.Mode, a.Spec.Identity.SPIFFEIDs = name, v1alpha1.ModeManaged, []string{env.SPIFFEID(name)}
		registered = append(registered, a)
	}
	registry.Set(registered)
	said, err := header.New(header.Config{})
	if err != nil {
		w.t.Fatal(err)
	}
	source := w.source(env.PrincipalID)
	method := server.Method{
		Name: identity.MethodHeader, Credentials: insecure.NewCredentials(), Authenticate: said.Peer, ProveAgain: true,
		Prove: func(ctx context.Context, to spiffeid.ID, nonce stream.Nonce) (string, error) {
			proof, err := source.FetchToken(ctx, to.String(), nonce.Audience())
			if err != nil {
				return "", err
			}
			return proof.Marshal(), nil
		},
	}
	s, err := server.New(server.Config{
		Credentials: method.Credentials, Authenticate: method.Authenticate, Registry: registry, Register: w.dialer.Register,
		Serve:  func(context.Context, server.Session, *server.Conn) error { return nil },
		HubUID: "hub-uid", Metrics: prometheus.NewRegistry(), Log: w.log(),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	l, err := devworkload.Listen(w.t.Context(), socket, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	if l, err = method.On(l); err != nil {
		w.t.Fatal(err)
	}
	kit.Background(w.t, func(ctx context.Context) error { return s.Run(ctx, l) })
}

// tunnelSpoke is the running spoke's end of an agent's tunnel.
type tunnelSpoke struct {
	metrics *prometheus.Registry
	cable   *cable
	stop    func()
	// held are the spoke's ends of connections to stream.Kubernetes.
	held chan halfConn
}

// halfConn is a connection of the tunnel.
type halfConn interface {
	net.Conn
	CloseWrite() error
}

// spoke runs an acceptor of an agent that echoes at stream.Redis, and waits until it has
// as many spare streams as it wants. change may alter its configuration.
func (w *tunnelEnv) spoke(agent string, change func(*acceptor.Config)) *tunnelSpoke {
	w.t.Helper()
	source := w.source(env.SPIFFEID(agent))
	toGateway, err := source.GatewayCredentials(workload.Gateway{Authorize: identity.AllowIDs(spiffeid.RequireFromString(env.GatewayID)), Present: true})
	if err != nil {
		w.t.Fatal(err)
	}
	s := &tunnelSpoke{metrics: prometheus.NewRegistry(), cable: &cable{}, held: make(chan halfConn)}
	cfg := acceptor.Config{
		Target: w.address, Credentials: overCable{toGateway, s.cable}, Agent: kit.Agent(w.t, agent), MinSpares: 1,
		Mutual: streamcall.Mutual{Verify: func(proof string, nonce stream.Nonce) error {
			p, err := source.VerifyToken(proof, env.SPIFFEID(agent), nonce.Audience())
			if err != nil {
				return err
			}
			return identity.AllowIDs(spiffeid.RequireFromString(env.PrincipalID))(p.ID)
		}},
		Services: map[stream.Service]tunnel.Handler{stream.Kubernetes: s.hold, stream.Redis: func(_ context.Context, conn net.Conn) error {
			if _, err := io.Copy(conn, conn); err != nil {
				return err
			}
			return conn.(halfConn).CloseWrite()
		}},
		HandshakeTimeout: env.Patience, Silence: env.Patience, Metrics: s.metrics, Log: w.log(),
	}
	if change != nil {
		change(&cfg)
	}
	a, err := acceptor.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	s.stop = kit.Background(w.t, a.Run)
	w.t.Cleanup(s.cable.release) // so that it can end
	w.await("spare streams of "+agent, func() error { return noLess(measured(w.t, s.metrics, "argomesh_tunnel_spare_streams"), cfg.MinSpares) })
	return s
}

// cable is what is below the TLS of an agent's connections.
type cable struct {
	mu   sync.Mutex // guards what follows
	open []*net.TCPConn
	full chan struct{} // nil, or closed once what comes is read again
}

// clog lets nothing more of what comes be read, until release.
func (c *cable) clog() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.full = make(chan struct{})
}

func (c *cable) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full != nil {
		close(c.full)
		c.full = nil
	}
}

// cut ends all connections, by a reset or in the order of TCP, but not of TLS.
func (c *cable) cut(reset bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		if reset {
			_ = conn.SetLinger(0)
		}
		_ = conn.Close() // it may have ended before
	}
	c.open = nil
}

// overCable are credentials of connections over a cable.
type overCable struct {
	credentials.TransportCredentials
	cable *cable
}

// ClientHandshake implements credentials.TransportCredentials.
func (o overCable) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	tcp := conn.(*net.TCPConn)
	if err := tcp.SetReadBuffer(64 << 10); err != nil { // so that it is Envoy that holds what is not read
		return nil, nil, err
	}
	o.cable.mu.Lock()
	o.cable.open = append(o.cable.open, tcp)
	o.cable.mu.Unlock()
	return o.TransportCredentials.ClientHandshake(ctx, authority, cabled{tcp, o.cable})
}

// Clone implements credentials.TransportCredentials.
func (o overCable) Clone() credentials.TransportCredentials {
	return overCable{o.TransportCredentials.Clone(), o.cable}
}

type cabled struct {
	net.Conn
	cable *cable
}

// Read implements net.Conn.
func (c cabled) Read(b []byte) (int, error) {
	c.cable.mu.Lock()
	full := c.cable.full
	c.cable.mu.Unlock()
	if full != nil {
		<-full
	}
	return c.Conn.Read(b)
}

// hold is a Handler whose connection a test has until it is closed.
func (s *tunnelSpoke) hold(ctx context.Context, conn net.Conn) error {
	select {
	case s.held <- conn.(halfConn):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	<-ctx.Done()
	return nil
}

// dial opens a connection that must succeed.
func (w *tunnelEnv) dial(agent string, service stream.Service) halfConn {
	w.t.Helper()
	c, err := w.open(agent, service)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// open is dial for what may fail.
func (w *tunnelEnv) open(agent string, service stream.Service) (halfConn, error) {
	c, err := w.dialer.Dial(w.t.Context(), kit.Agent(w.t, agent), service)
	if err != nil {
		return nil, err
	}
	w.t.Cleanup(func() { _ = c.Close() })
	return c.(halfConn), nil
}

// pair returns the two ends of a connection to a spoke.
func (w *tunnelEnv) pair(agent string, s *tunnelSpoke) (hubEnd, spokeEnd halfConn) {
	w.t.Helper()
	got := make(chan halfConn, 1)
	go func() {
		c := <-s.held
		_, _ = c.Read(nil) // which accepts it
		got <- c
	}()
	hubEnd = w.dial(agent, stream.Kubernetes)
	return hubEnd, <-got
}

// await is eventually for an environment.
func (w *tunnelEnv) await(what string, check func() error) {
	w.t.Helper()
	env.Eventually(w.t, what, check)
}

// statistic is one of the gateway.
func (w *tunnelEnv) statistic(name string) float64 {
	w.t.Helper()
	return env.EnvoyStatistic(w.t, &harness.Sidecar{Process: w.gateway, AdminAddress: w.admin}, name)
}

// goroutines counts those of an environment.
func (w *tunnelEnv) goroutines() (n int) {
	w.t.Helper()
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		w.t.Fatal(err)
	}
	label, count := fmt.Sprintf("%q:%q", envLabel, w.name), 0
	for line := range strings.Lines(profile.String()) {
		if _, err := fmt.Sscanf(line, "%d @", &count); err != nil && strings.HasPrefix(line, "# labels:") && strings.Contains(line, label) {
			n += count
		}
	}
	return n
}

func noLess(got float64, want int) error {
	if got < float64(want) {
		return fmt.Errorf("%v, want at least %d", got, want)
	}
	return nil
}

// measured adds up a metric, over its label values that contain the given ones.
func measured(t *testing.T, r *prometheus.Registry, name string, labels ...string) (sum float64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if !slices.ContainsFunc(labels, func(want string) bool { return !slices.Contains(values, want) }) {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// bounce writes random bytes to an echo and wants them back.
func bounce(c net.Conn, size int) error {
	if err := c.SetDeadline(time.Now().Add(env.Patience)); err != nil {
		return err
	}
	data, back := make([]byte, size), make([]byte, size)
	_, _ = rand.Read(data) // it never fails, says its documentation
	written := make(chan error, 1)
	go func() {
		_, err := c.Write(data)
		written <- err
	}()
	_, err := io.ReadFull(c, back)
	if err := errors.Join(err, <-written); err != nil {
		return err
	}
	if !bytes.Equal(data, back) {
		return fmt.Errorf("%d bytes come back as others", size)
	}
	return c.SetDeadline(time.Time{})
}
