package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/client"
	"github.com/argomesh/argomesh/stream/server"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/test/kit"
)

// byToken is what the principal does on a listener of tokens.
func byToken(source *workload.Source) *server.Method {
	return &server.Method{
		Name: identity.MethodJWT, Credentials: insecure.NewCredentials(), Authenticate: source.PeerFromToken, Renew: source.PeerOfToken,
		Prove: func(ctx context.Context, to spiffeid.ID, nonce stream.Nonce) (string, error) {
			svid, err := source.FetchToken(ctx, to.String(), nonce.Audience())
			if err != nil {
				return "", err
			}
			return svid.Marshal(), nil
		},
	}
}

// withToken is what an agent does whose TLS terminates before the principal.
func withToken(cfg client.Config, source *workload.Source) client.Config {
	token := source.Token(principalID.String())
	cfg.Credentials, cfg.Proves = insecure.NewCredentials(), nil
	cfg.Token = func(ctx context.Context) (string, time.Time, error) {
		svid, renewAt, err := token.Get(ctx)
		if err != nil {
			return "", time.Time{}, err
		}
		return svid.Marshal(), renewAt, nil
	}
	cfg.Verify = func(proof string, nonce stream.Nonce) error {
		p, err := source.VerifyToken(proof, edge1ID.String(), nonce.Audience())
		if err != nil {
			return err
		}
		return identity.AllowIDs(principalID)(p.ID)
	}
	return cfg
}

// One connection outlives its tokens, and the key that signed the first of them: each
// is followed by the next in time.
func TestTokensAreRenewedOnTheConnection(t *testing.T) {
	t.Parallel()
	source, edge1, api := withdrawable(t, time.Hour, 6*time.Second)
	p := newPrincipal(t, source)
	p.method, p.renewed, p.grace = byToken(source), make(chan server.Session, 64), 100*time.Millisecond
	p.start()
	a := run(t, withToken(config(t, p, edge1), edge1))
	first := p.session()
	if first.Peer.ID != edge1ID || first.Peer.Method != identity.MethodJWT {
		t.Errorf("Session.Peer = %+v", first.Peer)
	}
	if err := api.RotateCA(); err != nil { // the new key signs after five seconds
		t.Fatal(err)
	}
	for last := first.Peer.NotAfter; time.Since(first.Peer.NotAfter) < 2*time.Second; {
		select {
		case s := <-p.renewed:
			if !s.Peer.NotAfter.After(last) || s.Connection != first.Connection {
				t.Errorf("renewed to %s after %s on %s", s.Peer.NotAfter, last, s.Connection)
			}
			last = s.Peer.NotAfter
		case <-time.After(kit.Patience):
			t.Fatal("no token is renewed")
		}
	}
	a.served.wait(t, "one connection without a gap", func(open, opened, gaps int) bool { return open == 1 && opened == 1 && gaps == 0 })
	svid, err := edge1.FetchToken(t.Context(), principalID.String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jwtsvid.ParseAndValidate(svid.Marshal(), api.Bundle().JWTBundle(), []string{principalID.String()}); err != nil {
		t.Errorf("the newest token is not one of the newest bundle: %v", err)
	}
	if keys := len(api.Bundle().JWTBundle().JWTAuthorities()); keys != 2 {
		t.Errorf("%d keys, want the old and the new one", keys)
	}
}

// A principal that has slept until all it had was expired takes its agents again
// within ten seconds of its Workload API, with the pauses that both have by default.
func TestPrincipalWakesUp(t *testing.T) {
	t.Parallel()
	_, edge1, own := withdrawable(t, time.Hour, 0)
	dir, err := os.MkdirTemp("", "sc") // short, for the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	hub, err := devworkload.New(devworkload.Config{
		TrustDomain: spiffeid.RequireTrustDomainFromString("asleep.test"), Entries: []devworkload.Entry{{ID: asleepID, TTL: 3 * time.Second}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(hub.SetFederated(own.Bundle()), own.SetFederated(hub.Bundle())); err != nil {
		t.Fatal(err)
	}
	serve := func() (stop func()) {
		l, err := devworkload.Listen(t.Context(), filepath.Join(dir, "hub"), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return kit.Background(t, func(ctx context.Context) error { return hub.Run(ctx, l) })
	}
	source, err := workload.New(workload.Config{Socket: "unix://" + filepath.Join(dir, "hub"), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, source.Run)
	stop := serve()
	p := newPrincipal(t, source)
	p.start()
	cfg := config(t, p, edge1)
	cfg.Credentials = edge1.ClientCredentials(identity.AllowIDs(asleepID))
	cfg.BackOff = call.BackOff{} // as it is in production
	a := run(t, cfg)
	p.session()

	stop()
	p.stop()
	kit.Eventually(t, "everything is expired", func() bool { return source.Ready() != nil })
	p.start()
	kit.Eventually(t, "attempts, after which the pauses are long", func() bool {
		return a.metric(t, "argomesh_stream_connects_total", codes.Unavailable.String()) >= 5
	})
	serve()
	began := time.Now()
	p.session()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the agent was back after %s", took)
	}
}

var asleepID = spiffeid.RequireFromString("spiffe://asleep.test/principal")

// With its tokens over and none to be had the agent loses its connection, and comes
// back by itself.
func TestNoTokenNoConnection(t *testing.T) {
	t.Parallel()
	source, edge1 := tokenSources(t, time.Hour, 6*time.Second)
	p := newPrincipal(t, source)
	p.method, p.grace = byToken(source), 100*time.Millisecond
	p.start()
	cfg := withToken(config(t, p, edge1), edge1)
	var away atomic.Bool
	fetch := cfg.Token
	cfg.Token = func(ctx context.Context) (string, time.Time, error) {
		if away.Load() {
			return "", time.Time{}, workload.ErrNotReady
		}
		return fetch(ctx)
	}
	a := run(t, cfg)
	p.session()
	away.Store(true)
	a.log.Wait(t, "message", "no new token", "error", workload.ErrNotReady.Error())
	a.log.Wait(t, "message", "connection to the principal ended", "error", "expired")
	a.log.Wait(t, "message", "cannot connect to the principal", "error", workload.ErrNotReady.Error())
	away.Store(false)
	if s := p.session(); s.Peer.ID != edge1ID {
		t.Errorf("Session.Peer = %+v", s.Peer)
	}
}

// An agent that cannot know when its proof ends is told, and comes again in time.
func TestProvesAgainWhenAsked(t *testing.T) {
	t.Parallel()
	source, edge1 := sources(t, time.Hour)
	p := newPrincipal(t, source)
	p.method = byToken(source)
	p.method.Renew, p.method.ProveAgain = nil, true
	p.method.Authenticate = func(context.Context) (identity.Peer, error) {
		return identity.Peer{ID: edge1ID, NotAfter: time.Now().Add(3 * time.Second), Method: identity.MethodHeader}, nil
	}
	p.grace = 100 * time.Millisecond
	p.start()
	cfg := withToken(config(t, p, edge1), edge1)
	cfg.Token = nil
	a := run(t, cfg)
	a.served.wait(t, "four connections, one after the other", func(_, opened, _ int) bool { return opened >= 4 })
	a.served.wait(t, "no gap", func(open, _, gaps int) bool { return open >= 1 && gaps == 0 })
}

// intermediary answers hello with a welcome of its own, and tells what comes then.
type intermediary struct {
	streampb.UnimplementedStreamServer
	welcome func(hello stream.Hello) stream.Welcome
	hellos  chan stream.Hello
	after   chan error // what came after the welcome; nil for a frame
}

func (i *intermediary) Connect(g grpc.BidiStreamingServer[streampb.Frame, streampb.Frame]) error {
	frame, err := g.Recv()
	if err != nil {
		return err
	}
	hello, err := stream.ParseHello(frame)
	if err != nil {
		return err
	}
	i.hellos <- hello
	if err := g.Send(stream.WelcomeFrame(i.welcome(hello))); err != nil {
		return err
	}
	_, err = g.Recv()
	i.after <- err
	return err
}

// Anyone who answers without proving to be the principal, for this agent and on this
// connection, is told nothing but hello.
func TestOnlyThePrincipalIsBelieved(t *testing.T) {
	t.Parallel()
	source, edge1 := sources(t, time.Hour)
	fetch := func(s *workload.Source, audiences ...string) string {
		svid, err := s.FetchToken(context.Background(), audiences...)
		if err != nil {
			return "" // while the test ends
		}
		return svid.Marshal()
	}
	foreign, _ := sources(t, time.Hour) // the same trust domain by name, of another authority
	to := edge1ID.String()
	stale := stream.Nonce("the nonce of an earlier connection")
	for name, tt := range map[string]struct {
		proof func(stream.Nonce) string
		nonce func(stream.Nonce) stream.Nonce
		why   string // empty: believed
	}{
		"the principal": {
			proof: func(n stream.Nonce) string { return fetch(source, to, n.Audience()) },
		},
		"nobody":                     {proof: func(stream.Nonce) string { return "" }, why: "no proof"},
		"an earlier proof":           {proof: func(stream.Nonce) string { return fetch(source, to, stale.Audience()) }, why: "not for"},
		"an earlier proof and nonce": {proof: func(stream.Nonce) string { return fetch(source, to, stale.Audience()) }, nonce: func(stream.Nonce) stream.Nonce { return stale }, why: "no proof for this"},
		"a proof without a nonce":    {proof: func(stream.Nonce) string { return fetch(source, to) }, why: "not for"},
		"a proof for another agent": {
			proof: func(n stream.Nonce) string { return fetch(source, to+"-2", n.Audience()) }, why: "not for",
		},
		"the agent itself": {
			proof: func(n stream.Nonce) string { return fetch(edge1, to, n.Audience()) }, why: "identity not accepted",
		},
		"another authority": {
			proof: func(n stream.Nonce) string { return fetch(foreign, to, n.Audience()) }, why: "no JWT authority",
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := &intermediary{hellos: make(chan stream.Hello, 64), after: make(chan error, 64)}
			i.welcome = func(h stream.Hello) stream.Welcome {
				w := stream.Welcome{Protocol: stream.Protocol, Agent: h.Agent, HubUID: "hub", Connection: "c", Proof: tt.proof(h.Nonce), Nonce: h.Nonce}
				if tt.nonce != nil {
					w.Nonce = tt.nonce(h.Nonce)
				}
				return w
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			srv := grpc.NewServer()
			streampb.RegisterStreamServer(srv, i)
			go func() { _ = srv.Serve(l) }()
			t.Cleanup(srv.Stop)

			cfg := withToken(config(t, &principal{address: l.Addr().String()}, edge1), edge1)
			a := run(t, cfg)
			hello := <-i.hellos
			if len(hello.Nonce) != stream.NonceBytes {
				t.Fatalf("Hello.Nonce has %d bytes", len(hello.Nonce))
			}
			if tt.why == "" {
				a.served.wait(t, "a connection", func(open, _, _ int) bool { return open == 1 })
				return
			}
			a.log.Wait(t, "message", "did not prove that it is the principal", "error", tt.why)
			if err := a.Failure(); !errors.Is(err, call.ErrImpostor) || client.Refused(err) {
				t.Errorf("Failure() = %v, which is no refusal of the principal's", err)
			}
			if err := <-i.after; err == nil || errors.Is(err, io.EOF) || status.Code(err) != codes.Canceled {
				t.Errorf("after the welcome came %v, want the end and no frame", err)
			}
			if again := <-i.hellos; again.Nonce == hello.Nonce {
				t.Error("a nonce is used twice")
			}
			a.served.wait(t, "no connection", func(_, opened, _ int) bool { return opened == 0 })
		})
	}
}

// Once it can prove itself again, an agent does not sit out the pause of an attempt
// that it made without an identity.
func TestComesBackWithItsIdentity(t *testing.T) {
	t.Parallel()
	source, edge1 := sources(t, time.Hour)
	p := newPrincipal(t, source)
	p.start()
	cfg := config(t, p, edge1)
	cfg.BackOff = call.BackOff{Min: time.Hour, Max: time.Hour}
	var identified atomic.Bool
	updated := make(chan struct{})
	cfg.Updated = func() <-chan struct{} {
		if identified.Load() {
			return nil
		}
		return updated
	}
	cfg.Ready = func() error {
		if !identified.Load() {
			return workload.ErrNotReady
		}
		return nil
	}
	p.registry.Set(nil) // the attempt fails
	a := run(t, cfg)
	a.log.Wait(t, "message", "does not know this agent")
	p.registry.Set([]v1alpha1.Agent{edge1Agent()})
	identified.Store(true)
	close(updated)
	a.served.wait(t, "a connection at once", func(open, _, _ int) bool { return open == 1 })
}

// An agent whose identity was withdrawn ends what it opened with it, although its
// SVID would be good for an hour, and is back once it is registered again.
func TestWithdrawnIdentity(t *testing.T) {
	t.Parallel()
	source, edge1, api := withdrawable(t, time.Hour, 0)
	p := newPrincipal(t, source)
	p.start()
	cfg := config(t, p, edge1)
	cfg.Ready = edge1.Ready
	a := &agent{served: newServed(), log: kit.NewLog(), metrics: prometheus.NewRegistry()}
	cfg.Metrics, cfg.Log = a.metrics, zerolog.New(a.log)
	cfg.Serve = func(ctx context.Context, w stream.Welcome, conn *client.Conn) error {
		ctx, stop := edge1.While(ctx, time.Second) // as the agent wires it
		defer stop()
		return a.served.serve(ctx, w, conn)
	}
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, c.Run)
	p.session()
	if err := api.SetEntries(nil); err != nil {
		t.Fatal(err)
	}
	<-p.closed
	if since := edge1.Withdrawn(); since.IsZero() || time.Since(since) < time.Second {
		t.Errorf("the connection ended %s after the identity was withdrawn, want a second", time.Since(since))
	}
	a.log.Wait(t, "message", "cannot connect to the principal", "error", "issues no identity")
	a.served.wait(t, "no connection", func(open, opened, _ int) bool { return open == 0 && opened == 1 })
	if err := api.SetEntries([]devworkload.Entry{{ID: edge1ID}}); err != nil {
		t.Fatal(err)
	}
	p.session()
}
