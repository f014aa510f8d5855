package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/client"
	"github.com/argomesh/argomesh/test/kit"
)

func TestConnects(t *testing.T) {
	hub, edge1 := sources(t, time.Hour)
	p := newPrincipal(t, hub)
	p.start()
	a := run(t, config(t, p, edge1))
	if s := p.session(); s.Agent.Name.String() != "edge-1" || s.Hello.Version != "v1.2.3" {
		t.Errorf("the principal sees %+v, want edge-1 of v1.2.3", s)
	}
	a.served.wait(t, "the connection", func(open, _, _ int) bool { return open == 1 })
	// Run learns of it at the same time as Serve.
	kit.Eventually(t, "Connected() and argomesh_stream_up while a connection is open", func() bool {
		return a.Connected() && a.metric(t, "argomesh_stream_up", "") == 1
	})
	a.stop()
	if a.Connected() || a.metric(t, "argomesh_stream_up", "") != 0 {
		t.Errorf("Connected() = %t, argomesh_stream_up = %v after Run", a.Connected(), a.metric(t, "argomesh_stream_up", ""))
	}
	a.served.wait(t, "the end of the connection", func(open, _, _ int) bool { return open == 0 })
}

// With SVIDs of four seconds, and no grace to speak of: each is proven on a new
// connection before the one of the last ends.
func TestMakesBeforeItBreaks(t *testing.T) {
	hub, edge1 := sources(t, 4*time.Second)
	p := newPrincipal(t, hub)
	p.grace = 50 * time.Millisecond
	p.start()
	a := run(t, config(t, p, edge1))
	last := time.Time{}
	for range 5 {
		s := p.session()
		if !s.Peer.NotAfter.After(last) {
			t.Errorf("a new connection proves an SVID until %s, the last one until %s", s.Peer.NotAfter, last)
		}
		last = s.Peer.NotAfter
	}
	a.served.wait(t, "five connections", func(open, opened, gaps int) bool {
		if gaps > 0 {
			t.Fatalf("there were %d moments without a connection", gaps)
		}
		return opened >= 5 && open == 1
	})
	if !a.Connected() {
		t.Error("Connected() = false")
	}
}

// flaky forwards connections to an address, unless it is told to end them.
type flaky struct {
	net.Listener
	to      string
	broken  atomic.Bool
	silent  atomic.Bool // connections are accepted, and nothing more
	refused atomic.Int64
	wait    sync.WaitGroup
}

func newFlaky(t *testing.T, to string) *flaky {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &flaky{Listener: l, to: to}
	f.wait.Go(f.run)
	t.Cleanup(func() {
		_ = l.Close()
		f.wait.Wait()
	})
	return f
}

func (f *flaky) run() {
	for {
		in, err := f.Accept()
		if err != nil {
			return
		}
		if f.broken.Load() {
			_ = in.Close()
			f.refused.Add(1)
			continue
		}
		if f.silent.Load() {
			f.wait.Go(func() {
				_, _ = io.Copy(io.Discard, in) // until the client gives up
				_ = in.Close()
			})
			continue
		}
		out, err := net.Dial("tcp", f.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		for _, ends := range [][2]net.Conn{{in, out}, {out, in}} {
			f.wait.Go(func() {
				_, _ = io.Copy(ends[0], ends[1]) // until one of them ends
				_ = ends[0].Close()
				_ = ends[1].Close()
			})
		}
	}
}

// renewal is an SVID that the test renews.
type renewal struct {
	mu       sync.Mutex // guards the fields below
	notAfter time.Time
	updated  chan struct{}
}

// renewedBy makes the agent of cfg prove the SVID of the renewal it returns.
func renewedBy(cfg *client.Config) *renewal {
	r := &renewal{notAfter: time.Now(), updated: make(chan struct{})}
	cfg.Proves = func() time.Time {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.notAfter
	}
	cfg.Updated = func() <-chan struct{} {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.updated
	}
	return r
}

func (r *renewal) renew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notAfter = r.notAfter.Add(time.Hour)
	close(r.updated)
	r.updated = make(chan struct{})
}

// behindFlaky connects an agent over a network that the test disturbs, with an SVID
// that it renews.
func behindFlaky(t *testing.T) (*principal, *agent, *flaky, *renewal) {
	t.Helper()
	hub, edge1 := sources(t, time.Hour)
	p := newPrincipal(t, hub)
	p.start()
	way := newFlaky(t, p.address)
	cfg := config(t, p, edge1)
	cfg.Target = way.Addr().String()
	svid := renewedBy(&cfg)
	a := run(t, cfg)
	a.served.wait(t, "the connection", func(open, _, _ int) bool { return open == 1 })
	return p, a, way, svid
}

// A renewed SVID that could not be proven at once is proven later, though nothing
// more is renewed; the open connection stays meanwhile.
func TestProvesAgainAfterAFailure(t *testing.T) {
	_, a, way, svid := behindFlaky(t)
	way.broken.Store(true)
	svid.renew()
	a.log.Wait(t, "message", "cannot connect to the principal")
	if !a.Connected() {
		t.Error("Connected() = false while the first connection is open")
	}
	way.broken.Store(false)
	a.served.wait(t, "the second connection", func(open, opened, gaps int) bool { return open == 1 && opened == 2 && gaps == 0 })
	if way.refused.Load() == 0 {
		t.Error("no attempt was refused: the test shows nothing")
	}
}

// An agent that is revoked while it proves its identity on a new connection learns of
// it by the old one: the refusal of the new one would only say that no one knows it.
func TestRevokedWhileItProvesAgain(t *testing.T) {
	p, a, way, svid := behindFlaky(t)
	p.session()
	way.silent.Store(true)
	svid.renew()
	a.log.Wait(t, "message", "proving our identity on a new connection")
	p.registry.Set(nil)
	a.log.Wait(t, "message", "connection to the principal ended by revocation", "error", "no longer admits")
}

// A principal that stops says so; the agent finds the next one at its address.
func TestReconnectsAfterADrain(t *testing.T) {
	hub, edge1 := sources(t, time.Hour)
	p := newPrincipal(t, hub)
	p.start()
	a := run(t, config(t, p, edge1))
	p.session()
	p.stop()
	a.log.Wait(t, "message", "connection to the principal ended", "error", "the principal is stopping")
	a.served.wait(t, "the end", func(open, _, _ int) bool { return open == 0 })
	p.start()
	p.session()
	a.served.wait(t, "the next connection", func(open, opened, _ int) bool { return open == 1 && opened == 2 })
	if cuts := a.metric(t, "argomesh_stream_cut_seconds", ""); cuts != 0 {
		t.Errorf("%v connections count as cut", cuts)
	}
}

// What is between the two and ends connections is counted: a load balancer that does is found by it.
func TestCutsAreCounted(t *testing.T) {
	hub, edge1 := sources(t, time.Hour)
	p := newPrincipal(t, hub)
	p.start()
	way := newHole(t, p.address)
	cfg := config(t, p, edge1)
	cfg.Target = way.Addr().String()
	a := run(t, cfg)
	p.session()
	a.served.wait(t, "the connection", func(open, _, _ int) bool { return open == 1 })
	way.cut()
	a.served.wait(t, "the next connection", func(open, opened, _ int) bool { return open == 1 && opened == 2 })
	if cuts := a.metric(t, "argomesh_stream_cut_seconds", ""); cuts != 1 {
		t.Errorf("%v connections count as cut, want 1", cuts)
	}
}

// What the principal says becomes a message that helps.
func TestRefusals(t *testing.T) {
	hub, edge1 := sources(t, time.Hour)
	p := newPrincipal(t, hub)
	p.start()
	nobody, autonomous, suspended := []v1alpha1.Agent(nil), edge1Agent(), edge1Agent()
	autonomous.Spec.Mode, suspended.Spec.Suspended = v1alpha1.ModeAutonomous, true
	for name, tt := range map[string]struct {
		agents         []v1alpha1.Agent
		change         func(*client.Config)
		message, error string
		result         string
		refused        bool // by the principal
	}{
		"not registered": {
			nobody, func(*client.Config) {}, "register its SPIFFE ID", "not registered", "PermissionDenied", true,
		},
		"registered in another mode": {
			[]v1alpha1.Agent{autonomous}, func(*client.Config) {},
			"does not match its registration", "configured as managed, but registered as autonomous", "FailedPrecondition", true,
		},
		"suspended": {
			[]v1alpha1.Agent{suspended}, func(*client.Config) {}, "has suspended this agent", "suspended", "PermissionDenied", false,
		},
		"an impostor": {
			[]v1alpha1.Agent{edge1Agent()}, func(cfg *client.Config) {
				cfg.Credentials = edge1.ClientCredentials(identity.AllowIDs(spiffeid.RequireFromString("spiffe://hub.test/real-principal")))
			}, "cannot connect", "identity not accepted", "Unavailable", false,
		},
		"no TLS": {
			[]v1alpha1.Agent{edge1Agent()}, func(cfg *client.Config) { cfg.Credentials = insecure.NewCredentials() },
			"cannot connect", "", "Unavailable", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p.registry.Set(tt.agents)
			cfg := config(t, p, edge1)
			tt.change(&cfg)
			a := run(t, cfg)
			line := a.log.Wait(t, "message", tt.message, "error", tt.error)
			in, _ := line["retry_in"].(string)
			if _, err := time.ParseDuration(in); err != nil {
				t.Errorf("log line %v does not say when it is tried again, with its unit: %v", line, err)
			}
			if err := a.Failure(); err == nil || errors.Is(err, client.ErrNotTried) || client.Refused(err) != tt.refused {
				t.Errorf("Failure() = %v, taken for a refusal: %t", err, client.Refused(err))
			}
			a.stop()
			if a.metric(t, "argomesh_stream_connects_total", tt.result) == 0 {
				t.Errorf("argomesh_stream_connects_total{result=%q} = 0", tt.result)
			}
			if a.served.opened > 0 {
				t.Error("Serve was called")
			}
		})
	}
	// It comes up once it is registered.
	p.registry.Set(nobody)
	a := run(t, config(t, p, edge1))
	a.log.Wait(t, "message", "register its SPIFFE ID")
	p.registry.Set([]v1alpha1.Agent{edge1Agent()})
	a.served.wait(t, "the connection", func(open, _, _ int) bool { return open == 1 })
	kit.Eventually(t, "no failure", func() bool { return a.Failure() == nil })
	// And is told when it no longer is.
	p.registry.Set(nobody)
	a.log.Wait(t, "message", "connection to the principal ended", "error", "no longer admits")
	kit.Eventually(t, "the refusal that follows", func() bool { return client.Refused(a.Failure()) })
}

// An agent that starts over, as with each term of a Lease, says nothing of what was before.
func TestFailureIsOfThisRun(t *testing.T) {
	hub, edge1 := sources(t, time.Hour)
	p := newPrincipal(t, hub)
	p.start()
	p.registry.Set(nil)
	a := run(t, config(t, p, edge1))
	a.log.Wait(t, "message", "register its SPIFFE ID")
	a.stop()
	p.stop()
	silent, err := net.Listen("tcp", p.address) // the kernel accepts, no one answers
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	kit.Background(t, a.Run)
	kit.Eventually(t, "that the first connection is under way", func() bool { return errors.Is(a.Failure(), client.ErrNotTried) })
}

// Who accepts and then says nothing does not hold us up.
func TestHandshakeTimeout(t *testing.T) {
	_, edge1 := sources(t, time.Hour)
	l, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, no one answers
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	cfg := config(t, &principal{address: l.Addr().String()}, edge1)
	cfg.HandshakeTimeout = 200 * time.Millisecond
	a := run(t, cfg)
	a.log.Wait(t, "message", "cannot connect to the principal", "error", "no welcome in time")
}

func TestNewChecksItsConfig(t *testing.T) {
	name, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	good := func() client.Config {
		return client.Config{
			Target: "127.0.0.1:1", Credentials: insecure.NewCredentials(), Hello: stream.Hello{Agent: name},
			Serve:   func(context.Context, stream.Welcome, *client.Conn) error { return nil },
			Metrics: prometheus.NewRegistry(),
		}
	}
	c, err := client.New(good())
	if err != nil {
		t.Fatalf("New() = %v", err)
	}
	if c.Connected() {
		t.Error("Connected() = true before Run")
	}
	for name, change := range map[string]func(*client.Config){
		"no target":      func(c *client.Config) { c.Target = "" },
		"no credentials": func(c *client.Config) { c.Credentials = nil },
		"no hello":       func(c *client.Config) { c.Hello = stream.Hello{} },
		"no serve":       func(c *client.Config) { c.Serve = nil },
		"no metrics":     func(c *client.Config) { c.Metrics = nil },
	} {
		cfg := good()
		change(&cfg)
		if _, err := client.New(cfg); err == nil {
			t.Errorf("New() with %s returns no error", name)
		}
	}
	twice := good()
	if _, err := client.New(twice); err != nil {
		t.Fatal(err)
	}
	if _, err := client.New(twice); err == nil {
		t.Error("New() twice on the same registerer returns no error")
	}
}
