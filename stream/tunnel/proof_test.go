package tunnel_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/server"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/stream/tunnel/acceptor"
	"github.com/argomesh/argomesh/test/kit"
	"github.com/argomesh/argomesh/test/kit/spiffekit"
)

// gatewayID is what terminates TLS before the principal.
var gatewayID = spiffeid.RequireFromString("spiffe://hub.test/ns/ingress/sa/gateway")

// byToken is what a principal does on a listener of tokens.
func byToken(source *workload.Source) *server.Method {
	return &server.Method{
		Name: identity.MethodJWT, Credentials: h2c(), Authenticate: source.PeerFromToken, Renew: source.PeerOfToken,
		Prove: func(ctx context.Context, to spiffeid.ID, nonce stream.Nonce) (string, error) {
			svid, err := source.FetchToken(ctx, to.String(), nonce.Audience())
			if err != nil {
				return "", err
			}
			return svid.Marshal(), nil
		},
	}
}

// by has the hub serve by a method from now on.
func (h *hub) by(m *server.Method) {
	h.t.Helper()
	h.stop()
	h.method = m
	h.start()
}

// withToken is what edge-1 does whose TLS terminates before the principal.
func withToken(cfg acceptor.Config, source *workload.Source) acceptor.Config {
	token := source.Token(principalID.String())
	cfg.Credentials, cfg.Proves, cfg.Ready = h2c(), nil, source.Ready
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

// remoteOf is the address of the caller of ctx.
func remoteOf(ctx context.Context) string {
	p, _ := peer.FromContext(ctx)
	return p.Addr.String()
}

// talk exchanges messages until a time, and on a connection of its own each.
func (h *hub) talk(c net.Conn, until time.Time) {
	h.t.Helper()
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	for i := 0; time.Now().Before(until); i++ {
		exchange(h.t, c, fmt.Sprintf("message %d", i))
		another := h.dial("edge-1", stream.Redis) // at every moment
		exchange(h.t, another, "a new one")
		_ = another.Close()
		<-pause.C
	}
}

// A connection outlives the token that its stream began with, with no other stream to
// the principal: the next streams prove the next tokens, on the same TCP connection.
func TestTokensAreProvenByTheNextStreams(t *testing.T) {
	t.Parallel() // it waits for tokens to expire
	h := newHub(t, nil, func(cfg *server.Config) { cfg.Grace = 100 * time.Millisecond })
	h.by(byToken(h.source))
	source, _ := h.trust.Workload(devworkload.Entry{ID: edge1ID}, 5*time.Second)
	s := accept(t, withToken(h.config("edge-1", source, only(stream.Redis, echo)), source))
	h.spares(1)
	c := h.dial("edge-1", stream.Redis)
	silent := h.dial("edge-1", stream.Redis)
	pause := time.NewTimer(12 * time.Second) // two lives of a token, without anybody who dials
	defer pause.Stop()
	exchange(t, c, "early")
	<-pause.C
	exchange(t, c, "late")
	exchange(t, silent, "late")
	h.talk(c, time.Now().Add(6*time.Second))
	if n := metric(t, s.metrics, "argomesh_tunnel_carriers"); n != 1 {
		t.Errorf("%v TCP connections, want one", n)
	}
}

// What the sync stream proves again counts for tunnel streams that were opened with an
// older token, and for no longer than that.
func TestRenewalsOfTheStreamCountForTunnels(t *testing.T) {
	t.Parallel() // it waits for tokens to expire
	h := newHub(t, nil, func(cfg *server.Config) {
		cfg.Grace = 100 * time.Millisecond
		cfg.Serve = func(_ context.Context, _ server.Session, conn *server.Conn) error {
			for {
				if _, err := conn.Recv(); err != nil {
					return err
				}
			}
		}
	})
	h.by(byToken(h.source))
	source, _ := h.trust.Workload(devworkload.Entry{ID: edge1ID}, 4*time.Second)
	cfg := withToken(h.config("edge-1", source, only(stream.Redis, echo)), source)
	first, err := source.FetchToken(kit.Context(t), principalID.String())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Token = func(context.Context) (string, time.Time, error) { return first.Marshal(), time.Time{}, nil }
	accept(t, cfg)
	h.spares(1)
	c := h.dial("edge-1", stream.Redis)

	cc, err := grpc.NewClient(h.address, grpc.WithTransportCredentials(h2c()), grpc.WithDisableServiceConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	ctx := metadata.AppendToOutgoingContext(kit.Context(t), "authorization", "Bearer "+first.Marshal())
	connection, err := streampb.NewStreamClient(cc).Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := connection.Send(stream.HelloFrame(stream.Hello{Protocol: stream.Protocol, Agent: kit.Agent(t, "edge-1"), Mode: stream.Managed})); err != nil {
		t.Fatal(err)
	}
	if _, err := connection.Recv(); err != nil {
		t.Fatal(err)
	}
	var newest time.Time
	for newest.Before(first.Expiry.Add(3 * time.Second)) {
		svid, err := source.FetchToken(kit.Context(t), principalID.String())
		if err != nil {
			t.Fatal(err)
		}
		if svid.Expiry.After(newest) {
			newest = svid.Expiry
			if err := connection.Send(stream.FrameOf(stream.Credential{Token: svid.Marshal()})); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(50 * time.Millisecond)
	}
	for time.Now().Before(first.Expiry.Add(time.Second)) {
		exchange(t, c, "hello")
		<-time.After(50 * time.Millisecond)
	}
	if _, err := io.ReadAll(c); err == nil || time.Now().Before(newest) {
		t.Errorf("Read() = %v %s before the last token has expired", err, time.Until(newest))
	}
}

// A principal that alone knows when a proof ends gets new TCP connections in time.
func TestTunnelsProveAgainWhenAsked(t *testing.T) {
	t.Parallel() // it waits for proofs to expire
	h := newHub(t, nil, func(cfg *server.Config) { cfg.Grace = 100 * time.Millisecond })
	m := byToken(h.source)
	var connections sync.Map
	m.Renew, m.ProveAgain = nil, true
	m.Authenticate = func(ctx context.Context) (identity.Peer, error) {
		// As a certificate does: it is one for each TCP connection.
		notAfter, _ := connections.LoadOrStore(remoteOf(ctx), time.Now().Add(4*time.Second))
		return identity.Peer{ID: edge1ID, NotAfter: notAfter.(time.Time), Method: identity.MethodHeader}, nil
	}
	h.by(m)
	source, _ := h.trust.Workload(devworkload.Entry{ID: edge1ID}, 0)
	cfg := withToken(h.config("edge-1", source, only(stream.Redis, echo)), source)
	cfg.Token = nil
	s := accept(t, cfg)
	h.spares(1)
	c := h.dial("edge-1", stream.Redis)
	h.talk(c, time.Now().Add(10*time.Second))
	_ = c.Close()
	kit.Eventually(t, "one TCP connection", func() bool { return metric(t, s.metrics, "argomesh_tunnel_carriers") == 1 })
	n := 0
	connections.Range(func(any, any) bool { n++; return true })
	if n < 4 {
		t.Errorf("%d TCP connections in 10s, want more than %d", n, 3)
	}
}

// Anyone who answers without proving to be the principal, for this agent and on this
// connection, reaches nothing, although the right gateway has led to it.
func TestImpostorReachesNothing(t *testing.T) {
	trust := spiffekit.New(t, domain)
	source, _ := trust.Workload(devworkload.Entry{ID: principalID}, 0)
	edge1, _ := trust.Workload(devworkload.Entry{ID: edge1ID}, 0)
	foreign, _ := spiffekit.New(t, domain).Workload(devworkload.Entry{ID: principalID}, 0) // the same trust domain by name
	fetch := func(s *workload.Source, audiences ...string) string {
		svid, err := s.FetchToken(context.Background(), audiences...)
		if err != nil {
			return "" // while the test ends
		}
		return svid.Marshal()
	}
	to := edge1ID.String()
	stale := stream.Nonce("the nonce of an earlier connection")
	cert, err := trust.CA.Sign(devworkload.Leaf{URIs: []string{gatewayID.String()}})
	if err != nil {
		t.Fatal(err)
	}
	for what, tt := range map[string]struct {
		proof func(stream.Nonce) string
		nonce func(stream.Nonce) stream.Nonce // nil: that of the agent
		why   string                          // empty: it is the principal
	}{
		"the principal":              {proof: func(n stream.Nonce) string { return fetch(source, to, n.Audience()) }},
		"nobody":                     {proof: func(stream.Nonce) string { return "" }, why: "no proof"},
		"an earlier proof":           {proof: func(stream.Nonce) string { return fetch(source, to, stale.Audience()) }, why: "not for"},
		"an earlier proof and nonce": {func(stream.Nonce) string { return fetch(source, to, stale.Audience()) }, func(stream.Nonce) stream.Nonce { return stale }, "no proof for this"},
		"a proof without a nonce":    {proof: func(stream.Nonce) string { return fetch(source, to) }, why: "not for"},
		"a proof for another agent":  {proof: func(n stream.Nonce) string { return fetch(source, to+"-2", n.Audience()) }, why: "not for"},
		"the agent itself":           {proof: func(n stream.Nonce) string { return fetch(edge1, to, n.Audience()) }, why: "identity not accepted"},
		"another authority":          {proof: func(n stream.Nonce) string { return fetch(foreign, to, n.Audience()) }, why: "no JWT authority"},
	} {
		t.Run(what, func(t *testing.T) {
			ended, nonces := make(chan error, 4096), make(chan stream.Nonce, 4096)
			srv := grpc.NewServer()
			streampb.RegisterTunnelServer(srv, principal{serve: func(g grpc.BidiStreamingServer[streampb.Chunk, streampb.Chunk]) error {
				hello, err := g.Recv()
				if err != nil {
					return err
				}
				nonce := stream.Nonce(hello.GetHello().GetNonce())
				nonces <- nonce
				answer := helloChunk(func(h *streampb.TunnelHello) {
					h.Connection, h.Credential, h.Nonce = "c", tt.proof(nonce), []byte(nonce)
					if tt.nonce != nil {
						h.Nonce = []byte(tt.nonce(nonce))
					}
				})
				open := &streampb.Chunk{Body: &streampb.Chunk_Open{Open: &streampb.TunnelOpen{Service: stream.Kubernetes.String()}}}
				if err := errors.Join(g.Send(answer), g.Send(open), g.Send(dataChunk(1))); err != nil {
					ended <- err
					return err
				}
				_, err = g.Recv()
				ended <- err
				return err
			}})
			l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}})
			if err != nil {
				t.Fatal(err)
			}
			kit.Background(t, func(ctx context.Context) error {
				stop := context.AfterFunc(ctx, srv.Stop)
				defer stop()
				return srv.Serve(l)
			})
			var reached atomic.Int64
			served := make(chan struct{}, 256)
			h := &hub{t: t, trust: trust, address: l.Addr().String()}
			cfg := withToken(h.config("edge-1", edge1, only(stream.Kubernetes, func(_ context.Context, conn net.Conn) error {
				reached.Add(1)
				served <- struct{}{}
				_, err := conn.Read(make([]byte, 1))
				return err
			})), edge1)
			if cfg.Credentials, err = edge1.GatewayCredentials(workload.Gateway{Authorize: identity.AllowIDs(gatewayID)}); err != nil {
				t.Fatal(err)
			}
			a := accept(t, cfg)
			nonce := <-nonces
			if len(nonce) != stream.NonceBytes {
				t.Fatalf("the nonce has %d bytes", len(nonce))
			}
			if tt.why == "" {
				select {
				case <-served:
				case <-kit.Context(t).Done():
					t.Error("the principal itself is not believed")
				}
				return
			}
			a.log.Wait(t, "message", "did not prove that it is the principal", "error", tt.why)
			if err := <-ended; err == nil {
				t.Error("more than hello came")
			}
			if again := <-nonces; again == nonce {
				t.Error("a nonce is used for two connections")
			}
			if n := reached.Load(); n != 0 {
				t.Errorf("the service was reached %d times", n)
			}
		})
	}
}

// An agent whose identity was withdrawn ends the tunnel with it, although its SVID
// would be good for an hour, and comes back by itself.
func TestWithdrawnIdentityEndsTunnels(t *testing.T) {
	h := newHub(t, nil, nil)
	source, api := h.trust.Workload(devworkload.Entry{ID: edge1ID, TTL: time.Hour}, 0)
	cfg := h.config("edge-1", source, only(stream.Redis, echo))
	cfg.Ready = source.Ready
	cfg.While = func(ctx context.Context) (context.Context, context.CancelFunc) { return source.While(ctx, time.Second) }
	cfg.BackOff = call.BackOff{Min: time.Hour, Max: time.Hour} // it comes back with its identity, not by trying
	accept(t, cfg)
	h.spares(1)
	c := h.dial("edge-1", stream.Redis)
	exchange(t, c, "hello")
	if err := api.SetEntries(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err == nil {
		t.Error("the connection ends as if all were well")
	}
	if since := source.Withdrawn(); since.IsZero() || time.Since(since) < time.Second {
		t.Errorf("the connection ended %s after the identity was withdrawn, want a second", time.Since(since))
	}
	kit.Eventually(t, "the agent to be away", func() bool {
		_, err := h.dialer.Dial(kit.Context(t), kit.Agent(t, "edge-1"), stream.Redis)
		return errors.Is(err, stream.ErrNotConnected)
	})
	if err := api.SetEntries([]devworkload.Entry{{ID: edge1ID}}); err != nil {
		t.Fatal(err)
	}
	h.spares(1)
	exchange(t, h.dial("edge-1", stream.Redis), "again")
}
