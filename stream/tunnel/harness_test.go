package tunnel_test

import (
	"context"
	"io"
	"net"
	"os"
	"runtime"
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
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/server"
	"github.com/argomesh/argomesh/stream/tunnel"
	"github.com/argomesh/argomesh/stream/tunnel/acceptor"
	"github.com/argomesh/argomesh/stream/tunnel/dialer"
	"github.com/argomesh/argomesh/test/kit"
	"github.com/argomesh/argomesh/test/kit/spiffekit"
	"github.com/argomesh/argomesh/test/loopback"
)

var (
	domain      = spiffeid.RequireTrustDomainFromString("hub.test")
	principalID = spiffeid.RequireFromString("spiffe://hub.test/principal")
	edge1ID     = spiffeid.RequireFromString("spiffe://hub.test/argomesh/agent/edge-1")
	edge2ID     = spiffeid.RequireFromString("spiffe://hub.test/argomesh/agent/edge-2")
	strangerID  = spiffeid.RequireFromString("spiffe://hub.test/argomesh/agent/stranger")
)

func agent(name string, ids ...spiffeid.ID) v1alpha1.Agent {
	a := v1alpha1.Agent{}
	a.Name = name
	a.Spec.Mode = v1alpha1.ModeManaged
	for _, id := range ids {
		a.Spec.Identity.SPIFFEIDs = append(a.Spec.Identity.SPIFFEIDs, id.String())
	}
	return a
}

// hub is a principal's server with nothing but tunnels.
type hub struct {
	t        testing.TB
	trust    *spiffekit.Domain
	source   *workload.Source
	registry *fleet.Registry
	dialer   *dialer.Dialer
	metrics  *prometheus.Registry
	log      *kit.Log
	change   func(*server.Config)
	method   *server.Method // nil: mutual TLS
	address  string
	stop     func()
}

// newHub runs one with edge-1 and edge-2 registered. The functions may alter its
// configuration.
func newHub(t testing.TB, tune func(*dialer.Config), change func(*server.Config)) *hub {
	t.Helper()
	h := &hub{t: t, trust: spiffekit.New(t, domain), registry: &fleet.Registry{}, metrics: prometheus.NewRegistry(), log: kit.NewLog(), change: change, address: loopback.Address(t)}
	h.registry.Set([]v1alpha1.Agent{agent("edge-1", edge1ID), agent("edge-2", edge2ID)})
	h.source = h.trust.Source(principalID)
	cfg := dialer.Config{Metrics: h.metrics, Log: zerolog.New(h.log)}
	if tune != nil {
		tune(&cfg)
	}
	d, err := dialer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.dialer = d
	h.start()
	return h
}

// start serves.
func (h *hub) start() {
	h.t.Helper()
	cfg := server.Config{
		Credentials:  h.source.ServerCredentials(zerolog.New(h.log)),
		Authenticate: workload.PeerFromContext, Registry: h.registry, Register: h.dialer.Register,
		Serve:  func(context.Context, server.Session, *server.Conn) error { return nil },
		HubUID: "hub-uid", Metrics: prometheus.NewRegistry(), Log: zerolog.New(h.log),
	}
	if h.change != nil {
		h.change(&cfg)
	}
	s, err := server.New(cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	l, err := net.Listen("tcp", h.address)
	if err != nil {
		h.t.Fatal(err)
	}
	if h.method != nil {
		if l, err = h.method.On(l); err != nil {
			h.t.Fatal(err)
		}
	}
	h.stop = kit.Background(h.t, func(ctx context.Context) error { return s.Run(ctx, l) })
}

// dial opens a connection that must succeed.
func (h *hub) dial(agent string, service stream.Service) halfConn {
	h.t.Helper()
	c, err := h.dialer.Dial(kit.Context(h.t), kit.Agent(h.t, agent), service)
	if err != nil {
		h.t.Fatalf("Dial(%s, %s) = %v", agent, service, err)
	}
	h.t.Cleanup(func() { _ = c.Close() })
	return c.(halfConn)
}

// spares waits until the hub has at least n spare streams.
func (h *hub) spares(n int) {
	h.t.Helper()
	kit.Eventually(h.t, "spare streams", func() bool { return metric(h.t, h.metrics, "argomesh_tunnel_spare_streams") >= float64(n) })
}

type halfConn interface {
	net.Conn
	CloseWrite() error
}

func credentialsOf(s *workload.Source) credentials.TransportCredentials {
	return s.ClientCredentials(identity.AllowIDs(principalID))
}

// spoke is a running acceptor.
type spoke struct {
	*acceptor.Acceptor
	metrics *prometheus.Registry
	log     *kit.Log
	stop    func()
}

// config is that of an agent with a source of identity.
func (h *hub) config(agent string, source *workload.Source, services map[stream.Service]tunnel.Handler) acceptor.Config {
	h.t.Helper()
	return acceptor.Config{
		Target: h.address, Credentials: credentialsOf(source), Agent: kit.Agent(h.t, agent), Services: services,
		Updated: source.Updated,
		Proves: func() time.Time {
			svid, err := source.GetX509SVID()
			if err != nil {
				return time.Time{}
			}
			return svid.Certificates[0].NotAfter
		},
		BackOff: call.BackOff{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond},
	}
}

func accept(t testing.TB, cfg acceptor.Config) *spoke {
	t.Helper()
	s := &spoke{metrics: prometheus.NewRegistry(), log: kit.NewLog()}
	cfg.Metrics, cfg.Log = s.metrics, zerolog.New(s.log)
	a, err := acceptor.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Acceptor = a
	s.stop = kit.Background(t, a.Run)
	return s
}

// spoke runs an acceptor of an agent, and waits until it has spare streams.
func (h *hub) spoke(agent string, services map[stream.Service]tunnel.Handler, change func(*acceptor.Config)) *spoke {
	h.t.Helper()
	id := map[string]spiffeid.ID{"edge-1": edge1ID, "edge-2": edge2ID}[agent]
	cfg := h.config(agent, h.trust.Source(id), services)
	if change != nil {
		change(&cfg)
	}
	s := accept(h.t, cfg)
	// Its own, since those of another spoke may still be coming.
	kit.Eventually(h.t, "spare streams of "+agent, func() bool {
		return metric(h.t, s.metrics, "argomesh_tunnel_spare_streams") >= float64(max(cfg.MinSpares, 1))
	})
	return s
}

// only is a map with one service.
func only(service stream.Service, handler tunnel.Handler) map[stream.Service]tunnel.Handler {
	return map[stream.Service]tunnel.Handler{service: handler}
}

// echo writes what it reads.
func echo(_ context.Context, conn net.Conn) error {
	_, err := io.Copy(conn, conn)
	if err == nil {
		err = conn.(halfConn).CloseWrite()
	}
	return err
}

// exchange writes text and expects it back from an echo.
func exchange(t testing.TB, c net.Conn, text string) {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(kit.Patience)); err != nil {
		t.Fatalf("SetDeadline() = %v", err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatalf("Write() = %v", err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("Read() = %q, %v, want %q", got, err, text)
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
}

// metric adds up a metric, over all of its label values that contain the given ones.
func metric(t testing.TB, r *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
	metrics:
		for _, m := range family.GetMetric() {
			for _, want := range labels {
				found := false
				for _, l := range m.GetLabel() {
					found = found || l.GetValue() == want
				}
				if !found {
					continue metrics
				}
			}
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return sum
}

// resources counts what a test may leave behind.
func resources() (goroutines, descriptors int) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return runtime.NumGoroutine(), 0
	}
	return runtime.NumGoroutine(), len(entries)
}

// leavesNothing fails the test when, at its end, there are more goroutines or
// descriptors than now. It is the first call of a test.
func leavesNothing(t testing.TB) {
	t.Helper()
	goroutines, descriptors := resources()
	t.Cleanup(func() {
		deadline := time.Now().Add(kit.Patience)
		for {
			g, d := resources()
			if g <= goroutines && d <= descriptors {
				return
			}
			if time.Now().After(deadline) {
				stacks := make([]byte, 1<<20)
				t.Errorf("%d goroutines and %d descriptors are left, there were %d and %d:\n%s",
					g, d, goroutines, descriptors, stacks[:runtime.Stack(stacks, true)])
				return
			}
			<-time.After(5 * time.Millisecond)
		}
	})
}

// h2c is no TLS at all.
func h2c() credentials.TransportCredentials { return insecure.NewCredentials() }

// hole forwards connections until it is told to swallow: then it still takes what
// both ends send, acknowledges it, and passes nothing on.
type hole struct {
	net.Listener
	to      string
	swallow chan struct{} // closed to begin
	wait    sync.WaitGroup
	mu      sync.Mutex // guards open
	open    []net.Conn
}

func newHole(t testing.TB, to string) *hole {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hole{Listener: l, to: to, swallow: make(chan struct{})}
	h.wait.Go(h.run)
	t.Cleanup(func() {
		_ = l.Close()
		h.cut()
		h.wait.Wait()
	})
	return h
}

// cut ends all connections.
func (h *hole) cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.open {
		_ = c.Close()
	}
}

func (h *hole) run() {
	for {
		in, err := h.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", h.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		h.mu.Lock()
		h.open = append(h.open, in, out)
		h.mu.Unlock()
		h.wait.Go(func() { h.pipe(out, in) })
		h.wait.Go(func() { h.pipe(in, out) })
	}
}

// pipe copies until it swallows. An end that closes is not passed on then either.
func (h *hole) pipe(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-h.swallow:
			if err != nil {
				return
			}
			continue
		default:
		}
		if err == nil {
			_, err = to.Write(buffer[:n])
		}
		if err != nil {
			_, _ = to.Close(), from.Close()
			return
		}
	}
}
