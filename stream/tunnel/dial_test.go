package tunnel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/server"
	"github.com/argomesh/argomesh/stream/tunnel"
	"github.com/argomesh/argomesh/stream/tunnel/acceptor"
	"github.com/argomesh/argomesh/stream/tunnel/dialer"
	"github.com/argomesh/argomesh/test/kit"
	"github.com/argomesh/argomesh/test/loopback"
)

// A dial that fails says which side it is, and why, and leaves the tunnel as it was.
func TestDialErrors(t *testing.T) {
	leavesNothing(t)
	h := newHub(t, func(cfg *dialer.Config) { cfg.AnswerTimeout = 5 * time.Second }, nil)
	var service atomic.Pointer[tunnel.Handler]
	s := h.spoke("edge-1", map[stream.Service]tunnel.Handler{
		stream.Redis: func(ctx context.Context, conn net.Conn) error { return (*service.Load())(ctx, conn) },
	}, func(cfg *acceptor.Config) { cfg.AcceptTimeout = 2 * time.Second })
	released := make(chan struct{})
	nowhere := loopback.Address(t)
	fails := func(err error) tunnel.Handler { return func(context.Context, net.Conn) error { return err } }
	for what, tt := range map[string]struct {
		to      string
		service stream.Service
		handler tunnel.Handler
		kind    error
		says    string
		reason  tunnel.Reason // empty: the hub's own error
		result  string
	}{
		"an agent without tunnel": {to: "edge-2", service: stream.Redis, kind: stream.ErrNotConnected, says: "agent is not connected", result: "not-connected"},
		"an agent that is none":   {to: "edge-9", service: stream.Redis, kind: stream.ErrNotConnected, says: "dial redis of edge-9", result: "not-connected"},
		"no service":              {to: "edge-1", kind: identity.ErrInvalid, says: "no service"},
		"a service it does not have": {to: "edge-1", service: stream.Kubernetes, kind: stream.ErrRefused,
			says: "agent edge-1 is not configured to serve kubernetes", reason: tunnel.ReasonUnsupported, result: "unsupported"},
		"a service that is down": {to: "edge-1", service: stream.Redis, kind: stream.ErrUnavailable,
			handler: tunnel.Forward(func(ctx context.Context) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", nowhere)
			}),
			says: "agent edge-1 cannot reach its redis", reason: tunnel.ReasonUnreachable, result: "unreachable"},
		"what the spoke forbids": {to: "edge-1", service: stream.Redis, kind: stream.ErrRefused, handler: fails(fmt.Errorf("no: %w", identity.ErrDenied)),
			says: "agent edge-1 does not allow this connection", reason: tunnel.ReasonDenied, result: "denied"},
		"a service that times out": {to: "edge-1", service: stream.Redis, kind: stream.ErrUnavailable, handler: fails(os.ErrDeadlineExceeded),
			says: "agent edge-1 got no answer of its redis in time", reason: tunnel.ReasonTimeout, result: "timeout"},
		"a handler that hangs": {to: "edge-1", service: stream.Redis, kind: stream.ErrUnavailable,
			handler: func(ctx context.Context, _ net.Conn) error { <-ctx.Done(); return ctx.Err() },
			says:    "agent edge-1 got no answer of its redis in time", reason: tunnel.ReasonTimeout, result: "timeout"},
		"a handler that heeds nothing": {to: "edge-1", service: stream.Redis, kind: tunnel.ErrNoAnswer,
			handler: func(ctx context.Context, _ net.Conn) error { <-released; return ctx.Err() },
			says:    "does not answer", result: "no-answer"},
	} {
		t.Run(what, func(t *testing.T) {
			service.Store(&tt.handler)
			counted := metric(t, h.metrics, "argomesh_tunnel_dials_total", tt.result)
			c, err := h.dialer.Dial(kit.Context(t), kit.Agent(t, tt.to), tt.service)
			if c != nil || !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("Dial() = %v, %v, want %q of kind %q", c, err, tt.says, tt.kind)
			}
			refusal, ok := errors.AsType[*tunnel.ServiceError](err)
			if ok != (tt.reason != "") || ok && refusal.Reason != tt.reason {
				t.Errorf("Dial() = %v, want reason %q", err, tt.reason)
			}
			for _, secret := range []string{"127.0.0.1", nowhere} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the hub is told %q, which names %s", err, secret)
				}
			}
			if got := metric(t, h.metrics, "argomesh_tunnel_dials_total", tt.result); tt.result != "" && got != counted+1 {
				t.Errorf("argomesh_tunnel_dials_total{result=%q} = %v, want %v", tt.result, got, counted+1)
			}
		})
	}
	close(released)
	s.log.Wait(t, "message", "a connection of the hub to a service of this spoke failed", "error", nowhere)
	kit.Eventually(t, "connections to end", func() bool {
		return metric(t, h.metrics, "argomesh_tunnel_connections") == 0 && metric(t, s.metrics, "argomesh_tunnel_connections") == 0
	})
	handler := tunnel.Handler(echo)
	service.Store(&handler)
	exchange(t, h.dial("edge-1", stream.Redis), "still there")
}

// A dial can be cancelled while it waits for a stream, and while it waits for an
// answer; the agent's side of it then ends too.
func TestDialIsCancelled(t *testing.T) {
	leavesNothing(t)
	h := newHub(t, nil, nil)
	waits, gone := make(chan struct{}), make(chan struct{})
	s := h.spoke("edge-1", only(stream.Redis, func(ctx context.Context, _ net.Conn) error {
		waits <- struct{}{}
		<-ctx.Done()
		gone <- struct{}{}
		return ctx.Err()
	}), func(cfg *acceptor.Config) { cfg.MinSpares, cfg.MaxSpares, cfg.MaxStreams = 1, 1, 2 })
	ctx, cancel := context.WithCancel(kit.Context(t))
	failed := make(chan error)
	dial := func() {
		_, err := h.dialer.Dial(ctx, kit.Agent(t, "edge-1"), stream.Redis)
		failed <- err
	}
	go dial()
	go dial()
	<-waits
	<-waits
	go dial() // there is no third stream
	kit.Eventually(t, "a dial to wait", func() bool { return metric(t, h.metrics, "argomesh_tunnel_waiting_dials", "redis") == 1 })
	cancel()
	for range 3 {
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("Dial() = %v, want %v", err, context.Canceled)
		}
	}
	<-gone
	<-gone
	if got := metric(t, h.metrics, "argomesh_tunnel_waiting_dials"); got != 0 {
		t.Errorf("%v dials still wait", got)
	}
	kit.Eventually(t, "the agent's side to end", func() bool { return metric(t, s.metrics, "argomesh_tunnel_accepts_total", "ended") == 2 })
}

// Many dials at once get what they ask for, though there are few spare streams; then
// more are kept, until no one asks any more.
func TestSparesFollowDemand(t *testing.T) {
	leavesNothing(t)
	h := newHub(t, nil, nil)
	s := h.spoke("edge-1", only(stream.Redis, echo), func(cfg *acceptor.Config) { cfg.Review = 200 * time.Millisecond })
	const dials = 200
	conns := make([]net.Conn, dials)
	var g sync.WaitGroup
	for i := range dials {
		g.Go(func() {
			c, err := h.dialer.Dial(kit.Context(t), kit.Agent(t, "edge-1"), stream.Redis)
			if err != nil {
				t.Errorf("Dial() = %v", err)
				return
			}
			conns[i] = c
		})
	}
	g.Wait()
	if t.Failed() {
		return
	}
	for i, c := range conns {
		exchange(t, c, fmt.Sprintf("connection %d", i))
	}
	if got := metric(t, h.metrics, "argomesh_tunnel_connections", "redis"); got != dials {
		t.Errorf("argomesh_tunnel_connections = %v, want %d", got, dials)
	}
	if got := metric(t, s.metrics, "argomesh_tunnel_carriers"); got < dials/64 {
		t.Errorf("%v TCP connections for %d streams, want no more than 64 each", got, dials)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	kit.Eventually(t, "no more than two spare streams on one TCP connection", func() bool {
		return metric(t, h.metrics, "argomesh_tunnel_spare_streams") == 2 && metric(t, s.metrics, "argomesh_tunnel_carriers") == 1 &&
			metric(t, h.metrics, "argomesh_tunnel_connections") == 0
	})
	exchange(t, h.dial("edge-1", stream.Redis), "as before")
	if sent, received := metric(t, h.metrics, "argomesh_tunnel_bytes_total", "sent"), metric(t, s.metrics, "argomesh_tunnel_bytes_total", "received"); sent != received || sent == 0 {
		t.Errorf("the hub sent %v bytes, the spoke received %v", sent, received)
	}
}

// Connections that are over sooner than the agent can replace their streams do not
// make it look away.
func TestShortConnections(t *testing.T) {
	leavesNothing(t)
	h := newHub(t, nil, nil)
	h.spoke("edge-1", only(stream.Redis, echo), func(cfg *acceptor.Config) { cfg.MinSpares, cfg.MaxSpares = 1, 1 })
	for i := range 300 {
		c, err := h.dialer.Dial(kit.Context(t), kit.Agent(t, "edge-1"), stream.Redis)
		if err != nil {
			t.Fatalf("Dial() number %d = %v", i, err)
		}
		exchange(t, c, "x")
		_ = c.Close()
	}
}

// Beyond its bound an agent opens no more streams: the next dial waits, and fails in
// time; beyond another bound it does not even wait. A stream that ends makes room.
func TestBoundAtTheAgent(t *testing.T) {
	leavesNothing(t)
	const streams = 8
	h := newHub(t, func(cfg *dialer.Config) { cfg.SpareTimeout, cfg.MaxWaiting = 3*time.Second, 2 }, nil)
	h.spoke("edge-1", only(stream.Redis, echo), func(cfg *acceptor.Config) { cfg.MaxStreams = streams })
	var conns []halfConn
	for range streams {
		conns = append(conns, h.dial("edge-1", stream.Redis))
	}
	failed := make(chan error)
	for range 2 {
		go func() {
			_, err := h.dialer.Dial(kit.Context(t), kit.Agent(t, "edge-1"), stream.Redis)
			failed <- err
		}()
	}
	kit.Eventually(t, "dials to wait", func() bool { return metric(t, h.metrics, "argomesh_tunnel_waiting_dials") == 2 })
	if _, err := h.dialer.Dial(kit.Context(t), kit.Agent(t, "edge-1"), stream.Redis); !errors.Is(err, tunnel.ErrBusy) {
		t.Errorf("Dial() beyond the dials that may wait = %v, want %v", err, tunnel.ErrBusy)
	}
	for range 2 {
		if err := <-failed; !errors.Is(err, tunnel.ErrNoSpare) || !errors.Is(err, stream.ErrUnavailable) {
			t.Errorf("Dial() beyond the streams of the agent = %v, want %v", err, tunnel.ErrNoSpare)
		}
	}
	_ = conns[0].Close()
	exchange(t, h.dial("edge-1", stream.Redis), "in its place")
	for _, c := range conns[1:] {
		exchange(t, c, "undisturbed")
	}
}

// An agent that opens more streams than the hub takes keeps those that it has, and
// another agent's are not fewer for it.
func TestBoundsAtTheHub(t *testing.T) {
	for bound, change := range map[string]func(*dialer.Config){
		"per agent": func(cfg *dialer.Config) { cfg.MaxStreams = 6 },
		"in all":    func(cfg *dialer.Config) { cfg.MaxTotalStreams = 2 }, // and four of their own
	} {
		t.Run(bound, func(t *testing.T) {
			leavesNothing(t)
			h := newHub(t, func(cfg *dialer.Config) { cfg.SpareTimeout = 3 * time.Second; change(cfg) }, nil)
			s := h.spoke("edge-1", only(stream.Redis, echo), nil)
			var conns []halfConn
			for range 6 {
				conns = append(conns, h.dial("edge-1", stream.Redis))
			}
			if _, err := h.dialer.Dial(kit.Context(t), kit.Agent(t, "edge-1"), stream.Redis); !errors.Is(err, tunnel.ErrNoSpare) {
				t.Errorf("Dial() beyond the bound = %v, want %v", err, tunnel.ErrNoSpare)
			}
			s.log.Wait(t, "message", "the principal accepts no more streams of the tunnel")
			h.spoke("edge-2", only(stream.Redis, echo), nil)
			exchange(t, h.dial("edge-2", stream.Redis), "mine")
			for _, c := range conns {
				exchange(t, c, "undisturbed")
			}
			_ = conns[0].Close()
			kit.Eventually(t, "room for another", func() bool {
				c, err := h.dialer.Dial(kit.Context(t), kit.Agent(t, "edge-1"), stream.Redis)
				if err != nil {
					return false
				}
				exchange(t, c, "in its place")
				return c.Close() == nil
			})
		})
	}
}

// Bytes of one agent never reach another (I6), and who is not registered gets
// nothing (I7): names come from the registry, not from what a peer says.
func TestAgentsAreApart(t *testing.T) {
	leavesNothing(t)
	h := newHub(t, nil, nil)
	says := func(who string) tunnel.Handler {
		return func(_ context.Context, conn net.Conn) error {
			_, err := io.WriteString(conn, who)
			return err
		}
	}
	h.spoke("edge-1", only(stream.Redis, says("edge-1")), nil)
	h.spoke("edge-2", only(stream.Redis, says("edge-2")), nil)
	for what, tt := range map[string]struct {
		source, claims, logs string
	}{
		"edge-1 that claims to be edge-2":   {edge1ID.String(), "edge-2", `configured as "edge-2"`},
		"a stranger that claims an agent":   {strangerID.String(), "edge-1", strangerID.String()},
		"a stranger with a name of its own": {strangerID.String(), "stranger", strangerID.String()},
	} {
		t.Run(what, func(t *testing.T) {
			id := edge1ID
			if strings.Contains(tt.source, "stranger") {
				id = strangerID
			}
			cfg := h.config(tt.claims, h.trust.Source(id), only(stream.Redis, says("the wrong one")))
			cfg.BackOff.Max = time.Hour // once is enough
			s := accept(t, cfg)
			h.log.Wait(t, "message", "connection refused", "error", tt.logs)
			s.log.Wait(t, "message", "cannot open the tunnel to the principal")
		})
	}
	var g sync.WaitGroup
	for i := range 100 {
		who := fmt.Sprintf("edge-%d", 1+i%2)
		g.Go(func() {
			c, err := h.dialer.Dial(kit.Context(t), kit.Agent(t, who), stream.Redis)
			if err != nil {
				t.Errorf("Dial(%s) = %v", who, err)
				return
			}
			defer func() { _ = c.Close() }()
			if got, err := io.ReadAll(c); err != nil || string(got) != who {
				t.Errorf("behind %s there is %q, %v", who, got, err)
			}
		})
	}
	g.Wait()
	if _, err := h.dialer.Dial(kit.Context(t), kit.Agent(t, "stranger"), stream.Redis); !errors.Is(err, stream.ErrNotConnected) {
		t.Errorf("Dial(stranger) = %v, want %v", err, stream.ErrNotConnected)
	}
}

// A revocation ends connections within a second, at both ends and with an error,
// and leaves other agents alone.
func TestRevocationEndsConnections(t *testing.T) {
	leavesNothing(t)
	h := newHub(t, nil, nil)
	h.spoke("edge-1", only(stream.Redis, echo), nil)
	h.spoke("edge-2", only(stream.Redis, echo), nil)
	revoked, witness := h.dial("edge-1", stream.Redis), h.dial("edge-2", stream.Redis)
	exchange(t, revoked, "hello")
	if _, err := io.WriteString(revoked, "on its way"); err != nil {
		t.Fatal(err)
	}
	h.registry.Set([]v1alpha1.Agent{agent("edge-2", edge2ID)})
	_, err := io.ReadAll(revoked)
	if !errors.Is(err, stream.ErrRevoked) {
		t.Errorf("Read() of a revoked agent = %v, want %v", err, stream.ErrRevoked)
	}
	kit.Eventually(t, "the agent to be away", func() bool {
		_, err := h.dialer.Dial(kit.Context(t), kit.Agent(t, "edge-1"), stream.Redis)
		return errors.Is(err, stream.ErrNotConnected)
	})
	exchange(t, witness, "undisturbed")
	h.registry.Set([]v1alpha1.Agent{agent("edge-1", edge1ID), agent("edge-2", edge2ID)})
	kit.Eventually(t, "the agent to be back", func() bool {
		c, err := h.dialer.Dial(kit.Context(t), kit.Agent(t, "edge-1"), stream.Redis)
		if err != nil {
			return false
		}
		exchange(t, c, "again")
		return c.Close() == nil
	})
}

// A connection survives the SVID that its stream began with, for as long as the
// agent proves newer ones, on TCP connections of their own.
func TestRotation(t *testing.T) {
	t.Parallel() // it waits for SVIDs to expire
	h := newHub(t, nil, func(cfg *server.Config) { cfg.Grace = 100 * time.Millisecond })
	source, _ := h.trust.Workload(devworkload.Entry{ID: edge1ID, TTL: 4 * time.Second}, 0)
	cfg := h.config("edge-1", source, only(stream.Redis, echo))
	s := accept(t, cfg)
	h.spares(1)
	svid, err := source.GetX509SVID()
	if err != nil {
		t.Fatal(err)
	}
	c := h.dial("edge-1", stream.Redis)
	over := svid.Certificates[0].NotAfter.Add(3 * time.Second)
	for i := 0; time.Now().Before(over); i++ {
		exchange(t, c, fmt.Sprintf("message %d", i))
		another := h.dial("edge-1", stream.Redis) // at every moment
		exchange(t, another, "a new one")
		_ = another.Close()
		<-time.After(20 * time.Millisecond)
	}
	_ = c.Close()
	kit.Eventually(t, "one TCP connection", func() bool { return metric(t, s.metrics, "argomesh_tunnel_carriers") == 1 })
}

// Without a newer SVID the authority of a connection ends with the grace.
func TestExpiryEndsConnections(t *testing.T) {
	t.Parallel() // it waits for the SVID to expire
	h := newHub(t, nil, func(cfg *server.Config) { cfg.Grace = 500 * time.Millisecond })
	source := h.trust.Source(edge1ID)
	cfg := h.config("edge-1", source, only(stream.Redis, echo))
	notAfter := time.Now().Add(3 * time.Second).Truncate(time.Second) // as certificates say it
	cfg.Credentials = h.trust.Leaf(devworkload.Leaf{URIs: []string{edge1ID.String()}, NotAfter: notAfter})
	cfg.Updated, cfg.Proves = nil, nil
	accept(t, cfg)
	h.spares(1)
	c := h.dial("edge-1", stream.Redis)
	_, err := io.ReadAll(c)
	if err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("Read() after the SVID has expired = %v", err)
	}
	if early := time.Until(notAfter); early > 0 {
		t.Errorf("the connection ends %s before the SVID does", early)
	}
}

// Anyone who goes away in the midst of a connection, the other end has an error, and
// what was read before is not taken for all.
func TestEndIsNeverSilent(t *testing.T) {
	const half = "half of an ans"
	begin := func(t *testing.T) (h *hub, s *spoke, way *hole, c halfConn, spokeEnd chan error) {
		leavesNothing(t)
		h = newHub(t, nil, func(cfg *server.Config) { cfg.DrainTimeout = 200 * time.Millisecond })
		way = newHole(t, h.address)
		spokeEnd = make(chan error, 1)
		s = h.spoke("edge-1", map[stream.Service]tunnel.Handler{
			stream.Kubernetes: func(_ context.Context, conn net.Conn) error {
				if _, err := io.WriteString(conn, half); err != nil {
					return err
				}
				_, err := io.Copy(io.Discard, conn)
				spokeEnd <- err
				return err
			},
			stream.Redis: func(_ context.Context, conn net.Conn) error {
				if _, err := io.WriteString(conn, half); err != nil {
					return err
				}
				return errors.New("the service has gone")
			},
		}, func(cfg *acceptor.Config) { cfg.Target = way.Addr().String() })
		c = h.dial("edge-1", stream.Kubernetes)
		exchanged := make([]byte, len(half))
		if _, err := io.ReadFull(c, exchanged); err != nil {
			t.Fatal(err)
		}
		return h, s, way, c, spokeEnd
	}
	lost := func(t *testing.T, c net.Conn, kind error) {
		if err := c.SetReadDeadline(time.Now().Add(kit.Patience)); err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, c)
		if err == nil || !errors.Is(err, kind) {
			t.Errorf("Read() of a broken connection = %d bytes, %v, want %v", n, err, kind)
		}
		if _, err := c.Write([]byte("x")); err == nil {
			t.Error("Write() to a broken connection succeeds")
		}
	}
	t.Run("the way is cut", func(t *testing.T) {
		_, _, way, c, spokeEnd := begin(t)
		way.cut()
		lost(t, c, tunnel.ErrLost)
		if err := <-spokeEnd; !errors.Is(err, tunnel.ErrLost) {
			t.Errorf("Read() at the spoke = %v, want %v", err, tunnel.ErrLost)
		}
	})
	t.Run("the agent stops", func(t *testing.T) {
		_, s, _, c, spokeEnd := begin(t)
		began := time.Now()
		s.stop()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("Run() takes %s to stop", took)
		}
		lost(t, c, stream.ErrUnavailable)
		if err := <-spokeEnd; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read() at the spoke = %v, want %v", err, net.ErrClosed)
		}
	})
	t.Run("the principal stops", func(t *testing.T) {
		h, _, _, _, spokeEnd := begin(t)
		h.stop()
		if err := <-spokeEnd; !errors.Is(err, stream.ErrUnavailable) {
			t.Errorf("Read() at the spoke = %v, want %v", err, stream.ErrUnavailable)
		}
	})
	t.Run("the service breaks", func(t *testing.T) {
		h, _, _, _, _ := begin(t)
		c := h.dial("edge-1", stream.Redis)
		got, err := io.ReadAll(c)
		refusal, ok := errors.AsType[*tunnel.ServiceError](err)
		if string(got) != half || !ok || refusal.Reason != tunnel.ReasonFailed {
			t.Errorf("ReadAll() = %q, %v, want what came and then %q", got, err, tunnel.ReasonFailed)
		}
	})
}

// The agent comes back by itself when the principal was away, and connections work
// as before.
func TestReconnect(t *testing.T) {
	leavesNothing(t)
	h := newHub(t, func(cfg *dialer.Config) { cfg.DrainTimeout = 100 * time.Millisecond }, nil)
	h.spoke("edge-1", only(stream.Redis, echo), nil)
	for range 3 {
		exchange(t, h.dial("edge-1", stream.Redis), "before")
		h.stop()
		kit.Eventually(t, "the agent to be away", func() bool {
			_, err := h.dialer.Dial(kit.Context(t), kit.Agent(t, "edge-1"), stream.Redis)
			return errors.Is(err, stream.ErrNotConnected)
		})
		h.start()
		h.spares(2)
	}
	exchange(t, h.dial("edge-1", stream.Redis), "after")
}

func TestConfigsAreChecked(t *testing.T) {
	if _, err := dialer.New(dialer.Config{}); err == nil {
		t.Error("NewDialer() without metrics succeeds")
	}
	good := acceptor.Config{
		Target: "127.0.0.1:1", Credentials: h2c(), Agent: kit.Agent(t, "edge-1"), Services: only(stream.Redis, echo),
	}
	for what, change := range map[string]func(*acceptor.Config){
		"no target":               func(c *acceptor.Config) { c.Target = "" },
		"no credentials":          func(c *acceptor.Config) { c.Credentials = nil },
		"no agent":                func(c *acceptor.Config) { c.Agent = identity.AgentName{} },
		"no service":              func(c *acceptor.Config) { c.Services = nil },
		"no metrics":              func(c *acceptor.Config) { c.Metrics = nil },
		"fewer than no spares":    func(c *acceptor.Config) { c.MinSpares = -1 },
		"fewer than least spares": func(c *acceptor.Config) { c.MinSpares, c.MaxSpares = 3, 2 },
		"spares only":             func(c *acceptor.Config) { c.MinSpares, c.MaxStreams = 2, 2 },
	} {
		cfg := good
		cfg.Metrics = prometheus.NewRegistry()
		change(&cfg)
		if _, err := acceptor.New(cfg); err == nil {
			t.Errorf("NewAcceptor() with %s succeeds", what)
		}
	}
}
