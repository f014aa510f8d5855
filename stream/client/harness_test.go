package client_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/client"
	"github.com/argomesh/argomesh/stream/server"
	"github.com/argomesh/argomesh/test/kit"
	"github.com/argomesh/argomesh/test/kit/spiffekit"
	"github.com/argomesh/argomesh/test/loopback"
)

var (
	domain      = spiffeid.RequireTrustDomainFromString("hub.test")
	principalID = spiffeid.RequireFromString("spiffe://hub.test/principal")
	edge1ID     = spiffeid.RequireFromString("spiffe://hub.test/argomesh/agent/edge-1")
)

// sources returns the identities of a principal and of edge-1, whose SVID lives
// for ttl.
func sources(t *testing.T, ttl time.Duration) (principal, edge1 *workload.Source) {
	t.Helper()
	return tokenSources(t, ttl, 0)
}

// tokenSources is sources with JWT-SVIDs that live for jwtTTL, zero for the default.
func tokenSources(t *testing.T, ttl, jwtTTL time.Duration) (principal, edge1 *workload.Source) {
	t.Helper()
	principal, edge1, _ = withdrawable(t, ttl, jwtTTL)
	return principal, edge1
}

// withdrawable is tokenSources, and the Workload API of edge-1.
func withdrawable(t *testing.T, ttl, jwtTTL time.Duration) (principal, edge1 *workload.Source, edge1API *devworkload.Server) {
	t.Helper()
	d := spiffekit.New(t, domain)
	principal, _ = d.Workload(devworkload.Entry{ID: principalID}, jwtTTL)
	edge1, edge1API = d.Workload(devworkload.Entry{ID: edge1ID, TTL: ttl}, jwtTTL)
	return principal, edge1, edge1API
}

func edge1Agent() v1alpha1.Agent {
	a := v1alpha1.Agent{}
	a.Name = "edge-1"
	a.Spec.Mode = v1alpha1.ModeManaged
	a.Spec.Identity.SPIFFEIDs = []string{edge1ID.String()}
	return a
}

// principal is a server at an address of its own, which can be started again.
type principal struct {
	t        *testing.T
	source   *workload.Source
	registry *fleet.Registry
	method   *server.Method // instead of mutual TLS
	renewed  chan server.Session
	grace    time.Duration
	serving  func(context.Context, server.Session, *server.Conn) error // what a connection is for
	closed   chan struct{}                                             // has a value for each connection that ended
	address  string
	sessions chan server.Session
	stop     func()
}

func newPrincipal(t *testing.T, source *workload.Source) *principal {
	t.Helper()
	p := &principal{t: t, source: source, registry: &fleet.Registry{}, address: loopback.Address(t), sessions: make(chan server.Session, 64), closed: make(chan struct{}, 64)}
	p.serving = p.serve
	p.registry.Set([]v1alpha1.Agent{edge1Agent()})
	return p
}

// start serves.
func (p *principal) start() {
	p.t.Helper()
	l, err := net.Listen("tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	if p.method != nil {
		if l, err = p.method.On(l); err != nil {
			p.t.Fatal(err)
		}
	}
	s, err := server.New(server.Config{
		Credentials:  p.source.ServerCredentials(zerolog.Nop()),
		Authenticate: workload.PeerFromContext, Registry: p.registry, Serve: p.serving, HubUID: "hub-uid",
		Opened: func(server.Session) func() { return func() { p.closed <- struct{}{} } },
		Renewed: func(s server.Session) {
			if p.renewed != nil {
				p.renewed <- s
			}
		},
		Grace: p.grace, Metrics: prometheus.NewRegistry(), Log: zerolog.Nop(),
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.stop = kit.Background(p.t, func(ctx context.Context) error { return s.Run(ctx, l) })
}

// serve holds a connection until it ends.
func (p *principal) serve(ctx context.Context, s server.Session, conn *server.Conn) error {
	select {
	case p.sessions <- s:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := conn.Recv(); err != nil {
				ended <- err
				return
			}
		}
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *principal) session() server.Session {
	p.t.Helper()
	select {
	case s := <-p.sessions:
		return s
	case <-time.After(kit.Patience):
		p.t.Fatal("no connection comes")
		return server.Session{}
	}
}

// served follows the connections of a client, of which each takes over from the
// one before, as a link does.
type served struct {
	mu      sync.Mutex // guards what follows
	end     chan struct{}
	open    int
	opened  int
	gaps    int // how often the last open one ended
	changed chan struct{}
}

func newServed() *served { return &served{changed: make(chan struct{})} }

func (s *served) serve(ctx context.Context, _ stream.Welcome, conn *client.Conn) error {
	end := make(chan struct{})
	s.mu.Lock()
	if s.end != nil {
		close(s.end)
	}
	s.end = end
	s.open++
	s.opened++
	s.tell()
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.end == end {
			s.end = nil
		}
		if s.open--; s.open == 0 {
			s.gaps++
		}
		s.tell()
	}()
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := conn.Recv(); err != nil {
				ended <- err
				return
			}
		}
	}()
	select {
	case <-end:
		return nil
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tell is called with mu held.
func (s *served) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// wait returns when holds does; it is called with the counts.
func (s *served) wait(t *testing.T, what string, holds func(open, opened, gaps int) bool) {
	t.Helper()
	deadline := time.After(kit.Patience)
	for {
		s.mu.Lock()
		changed, open, opened, gaps := s.changed, s.open, s.opened, s.gaps
		s.mu.Unlock()
		if holds(open, opened, gaps) {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("waited in vain for %s: %d open, %d opened, %d gaps", what, open, opened, gaps)
		}
	}
}

// agent is a running client.
type agent struct {
	*client.Client
	served  *served
	log     *kit.Log
	metrics *prometheus.Registry
	stop    func()
}

func edge1Name(t *testing.T) identity.AgentName {
	t.Helper()
	name, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func config(t *testing.T, p *principal, source *workload.Source) client.Config {
	t.Helper()
	return client.Config{
		Target:      p.address,
		Credentials: source.ClientCredentials(identity.AllowIDs(principalID)),
		Hello:       stream.Hello{Protocol: stream.Protocol, Version: "v1.2.3", Agent: edge1Name(t), Mode: stream.Managed},
		Updated:     source.Updated,
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

func run(t *testing.T, cfg client.Config) *agent {
	t.Helper()
	a := &agent{served: newServed(), log: kit.NewLog(), metrics: prometheus.NewRegistry()}
	cfg.Serve, cfg.Metrics, cfg.Log = a.served.serve, a.metrics, zerolog.New(a.log)
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	a.Client = c
	a.stop = kit.Background(t, c.Run)
	return a
}

// metric returns the value of a gauge or counter, of the given label value if it
// has any; zero when it is not there.
func (a *agent) metric(t *testing.T, name, label string) float64 {
	t.Helper()
	families, err := a.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}
