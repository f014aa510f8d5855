package workload_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/test/kit"
)

// pair is a hub and an agent of one trust domain.
type pair struct {
	hubAPI, edgeAPI *api
	hub, edge       *testSource
	server          *server
}

// newPair runs both; ttl is the life of their SVIDs.
func newPair(t *testing.T, ttl, prepare time.Duration) *pair {
	t.Helper()
	dir := t.TempDir()
	cfg := devworkload.Config{CADir: dir, X509TTL: ttl, Prepare: prepare}
	p := &pair{}
	cfg.Entries = entries(principal)
	p.hubAPI = newAPI(t, cfg).start()
	cfg.Entries = entries(edge)
	p.edgeAPI = newAPI(t, cfg).start()
	p.hub = ready(t, workload.Config{Socket: p.hubAPI.socket()})
	p.edge = ready(t, workload.Config{Socket: p.edgeAPI.socket()})
	p.server = serve(t, p.hub)
	return p
}

func TestPeerFromContext(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour, 0)
	if err := call(t, p.edge.dial(t, p.server.address, principal)); err != nil {
		t.Fatal(err)
	}
	svid, err := p.edge.GetX509SVID()
	if err != nil {
		t.Fatal(err)
	}
	want := identity.Peer{ID: edge, NotAfter: svid.Certificates[0].NotAfter, Method: identity.MethodX509}
	if got := p.server.health.peers; len(got) != 1 || p.server.health.errs[0] != nil || got[0] != want {
		t.Errorf("PeerFromContext() = %v, %v, want %v", got, p.server.health.errs, want)
	}
	if _, err := workload.PeerFromContext(context.Background()); !errors.Is(err, identity.ErrUnauthenticated) {
		t.Errorf("PeerFromContext() without a call = %v", err)
	}

	t.Run("on another connection", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		plain, health := grpc.NewServer(), &healthService{}
		grpc_health_v1.RegisterHealthServer(plain, health)
		kit.Serve(t, plain, l)
		if err := call(t, plaintextClient(t, l.Addr().String())); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(health.errs[0], identity.ErrUnauthenticated) {
			t.Errorf("PeerFromContext() of plaintext = %v, %v", health.peers[0], health.errs[0])
		}
	})
}

func plaintextClient(t *testing.T, address string) grpc_health_v1.HealthClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return grpc_health_v1.NewHealthClient(conn)
}

func TestClientAcceptsOnlyTheNamedServer(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour, 0)
	tests := map[string]struct {
		accept []spiffeid.ID
		want   bool
	}{
		"the server's id":                {[]spiffeid.ID{principal}, true},
		"one of two":                     {[]spiffeid.ID{edge, principal}, true},
		"another id":                     {[]spiffeid.ID{edge}, false},
		"same path, other trust domain":  {[]spiffeid.ID{spiffeid.RequireFromString("spiffe://other.test/principal")}, false},
		"no id at all: denies everybody": {nil, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := call(t, p.edge.dial(t, p.server.address, tc.accept...))
			if tc.want {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "presented "+principal.String()) {
				t.Errorf("call = %v, want Unavailable that names who answered", err)
			}
			for _, id := range tc.accept {
				if !strings.Contains(err.Error(), id.String()) {
					t.Errorf("error does not name the accepted %s: %v", id, err)
				}
			}
		})
	}
	p.server.log.Wait(t, "reason", "refused") // the server hears of it after the client has gone
	if got, _ := p.hub.metric(t, "argomesh_identity_handshake_failures_total", "refused"); got == 0 {
		t.Error("the server does not count that it was refused")
	}
}

// TestRefusals sends every kind of bad peer to one server while a good agent
// keeps calling it.
func TestRefusals(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour, 0)
	good := p.edge.dial(t, p.server.address, principal)
	if err := call(t, good); err != nil {
		t.Fatal(err)
	}
	stream, err := good.Watch(kit.Context(t), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	foreign := spiffeid.RequireTrustDomainFromString("foreign.test")
	foreignAPI := newAPI(t, devworkload.Config{TrustDomain: foreign})
	impostor := newAPI(t, devworkload.Config{}) // the right name, a root of its own

	sign := func(a *api, leaf devworkload.Leaf) func(*testing.T) error {
		return func(t *testing.T) error {
			cert, err := a.Sign(leaf)
			if err != nil {
				t.Fatal(err)
			}
			return tlsCall(t, p.server.address, &tls.Config{Certificates: []tls.Certificate{cert}})
		}
	}
	edgeLeaf := devworkload.Leaf{URIs: []string{edge.String()}}
	tests := map[string]struct {
		attack func(*testing.T) error
		reason string
		id     spiffeid.ID // that the log must name
	}{
		"plaintext gRPC": {func(t *testing.T) error { return call(t, plaintextClient(t, p.server.address)) }, "plaintext", spiffeid.ID{}},
		"plaintext http": {func(t *testing.T) error { return sendBytes(t, p.server.address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n") }, "plaintext", spiffeid.ID{}},
		"garbage bytes":  {func(t *testing.T) error { return sendBytes(t, p.server.address, "\x00\xff\x13\x37\x80\x01\x02\x03") }, "garbage", spiffeid.ID{}},
		"half a handshake": {func(t *testing.T) error {
			return sendBytes(t, p.server.address, "\x16\x03\x01\x02\x00\x01")
		}, "closed", spiffeid.ID{}},
		"tls 1.2": {func(t *testing.T) error {
			return tlsCall(t, p.server.address, &tls.Config{MaxVersion: tls.VersionTLS12})
		}, "tls", spiffeid.ID{}},
		"no certificate": {func(t *testing.T) error { return tlsCall(t, p.server.address, &tls.Config{}) }, "no_certificate", spiffeid.ID{}},
		"another protocol": {func(t *testing.T) error {
			return tlsCall(t, p.server.address, &tls.Config{NextProtos: []string{"smtp"}})
		}, "tls", spiffeid.ID{}},
		"http/1.1 with a good svid": {func(t *testing.T) error {
			cert, err := p.edgeAPI.Sign(edgeLeaf)
			if err != nil {
				t.Fatal(err)
			}
			return tlsCall(t, p.server.address, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}})
		}, "tls", spiffeid.ID{}},
		"an expired svid":       {sign(p.edgeAPI, devworkload.ExpiredLeaf(edge)), "expired", edge},
		"an svid of tomorrow":   {sign(p.edgeAPI, devworkload.FutureLeaf(edge)), "expired", edge},
		"two ids":               {sign(p.edgeAPI, devworkload.TwoURILeaf(edge, principal)), "bad_svid", spiffeid.ID{}},
		"a signing certificate": {sign(p.edgeAPI, devworkload.CALeaf(edge)), "bad_svid", spiffeid.ID{}},
		"a web certificate":     {sign(p.edgeAPI, devworkload.NoURILeaf("edge.test")), "bad_svid", spiffeid.ID{}},
		"for servers only": {sign(p.edgeAPI, devworkload.Leaf{
			URIs: []string{edge.String()}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}), "bad_svid", spiffeid.ID{}},
		"not for signatures": {sign(p.edgeAPI, devworkload.Leaf{
			URIs: []string{edge.String()}, KeyUsage: x509.KeyUsageKeyEncipherment,
		}), "bad_svid", spiffeid.ID{}},
		"for signing certificates": {sign(p.edgeAPI, devworkload.Leaf{
			URIs: []string{edge.String()}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		}), "bad_svid", spiffeid.ID{}},
		"the id of a trust domain":     {sign(p.edgeAPI, devworkload.Leaf{URIs: []string{"spiffe://hub.test"}}), "bad_svid", spiffeid.ID{}},
		"the id of a spire agent":      {sign(p.edgeAPI, devworkload.Leaf{URIs: []string{"spiffe://hub.test/spire/agent/x"}}), "bad_svid", spiffeid.ID{}},
		"the right path, other domain": {sign(foreignAPI, devworkload.Leaf{URIs: []string{"spiffe://foreign.test/argomesh/agent/edge-1"}}), "no_bundle", spiffeid.RequireFromString("spiffe://foreign.test/argomesh/agent/edge-1")},
		"our name by a foreign root":   {sign(foreignAPI, edgeLeaf), "untrusted", edge},
		"our name by an impostor":      {sign(impostor, edgeLeaf), "untrusted", edge},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			before, _ := p.hub.metric(t, "argomesh_identity_handshake_failures_total", tc.reason)
			logged := p.server.log.Count()
			err := tc.attack(t)
			if err == nil {
				t.Fatal("it was let in")
			}
			for _, secret := range []string{principal.String(), edge.String(), "accepted", p.hubAPI.path} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the peer learns %q: %v", secret, err)
				}
			}
			line := p.server.log.WaitAfter(t, logged, "reason", tc.reason)
			if host, _, err := net.SplitHostPort(line["peer"].(string)); err != nil || host != "127.0.0.1" {
				t.Errorf("log names peer %v", line["peer"])
			}
			if !tc.id.IsZero() && line["spiffe_id"] != tc.id.String() {
				t.Errorf("log names %v, want %s", line["spiffe_id"], tc.id)
			}
			if line["message"] != "handshake refused" || line["error"] == "" {
				t.Errorf("log line %v", line)
			}
			if after, _ := p.hub.metric(t, "argomesh_identity_handshake_failures_total", tc.reason); after <= before {
				t.Errorf("failures_total{%s} is %v after %v", tc.reason, after, before)
			}
			// Others do not notice.
			if err := call(t, p.edge.dial(t, p.server.address, principal)); err != nil {
				t.Errorf("a good agent is refused: %v", err)
			}
			if _, err := stream.Recv(); err != nil {
				t.Errorf("an open stream broke: %v", err)
			}
		})
	}
	for i, peer := range p.server.health.peers {
		if p.server.health.errs[i] != nil || peer.ID != edge {
			t.Errorf("a call came through from %v, %v", peer, p.server.health.errs[i])
		}
	}
}

// tlsCall opens TLS with cfg, which trusts every server, and returns why it
// failed: with TLS 1.3 the refusal of a client's certificate comes after its own
// part of the handshake, at the first read.
func tlsCall(t *testing.T, address string, cfg *tls.Config) error {
	t.Helper()
	cfg.InsecureSkipVerify = true
	if cfg.NextProtos == nil {
		cfg.NextProtos = []string{"h2"}
	}
	dialer := tls.Dialer{Config: cfg}
	conn, err := dialer.DialContext(kit.Context(t), "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return readRefusal(t, conn)
}

// sendBytes sends data and returns how the other end closed the connection.
func sendBytes(t *testing.T, address, data string) error {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, data); err != nil {
		return err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	return readRefusal(t, conn)
}

// readRefusal reads to the end. A server that lets us in sends HTTP/2 settings,
// one that does not may send a TLS alert, then closes.
func readRefusal(t *testing.T, conn net.Conn) error {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(kit.Patience)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 9)
	if _, err := io.ReadFull(conn, buf); err != nil {
		return err
	}
	if buf[3] == 4 { // HTTP/2 frame type SETTINGS
		return nil
	}
	return errors.New("refused with bytes")
}

// TestFloodIsLoggedWithinLimits makes many bad handshakes: all are counted, few
// are logged, and another kind of failure is still logged.
func TestFloodIsLoggedWithinLimits(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour, 0)
	const attempts = 200
	for range attempts {
		if err := sendBytes(t, p.server.address, "\x00\x00\x00\x00\x00\x00\x00\x00"); err == nil {
			t.Fatal("garbage was let in")
		}
	}
	if err := tlsCall(t, p.server.address, &tls.Config{}); err == nil {
		t.Fatal("no certificate was let in")
	}
	p.server.log.Wait(t, "reason", "no_certificate")
	// A peer hears of a refusal before it is counted, and the last is logged no more.
	kit.Eventually(t, "every attempt to be counted", func() bool {
		counted, _ := p.hub.metric(t, "argomesh_identity_handshake_failures_total", "garbage")
		return counted == attempts
	})
	if lines := p.server.log.Find("reason", "garbage"); len(lines) < 20 || len(lines) > attempts/2 {
		t.Errorf("%d lines were logged, want the first 20 and few more", len(lines))
	}
}

func TestServerWithoutSVIDRefuses(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour, 0)
	if err := p.hubAPI.SetEntries(nil); err != nil {
		t.Fatal(err)
	}
	p.hub.waitFor(t, "the loss", func() bool { return p.hub.Ready() != nil })
	if err := call(t, p.edge.dial(t, p.server.address, principal)); status.Code(err) != codes.Unavailable {
		t.Errorf("call = %v, want Unavailable", err)
	}
	p.server.log.Wait(t, "reason", "not_ready")
}

func TestClientWithoutSVIDSaysSo(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour, 0)
	if err := p.edgeAPI.SetEntries(nil); err != nil {
		t.Fatal(err)
	}
	p.edge.waitFor(t, "the loss", func() bool { return p.edge.Ready() != nil })
	err := call(t, p.edge.dial(t, p.server.address, principal))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "issues no identity") {
		t.Errorf("call = %v, want Unavailable that says what is missing", err)
	}
}

func TestFederatedPeers(t *testing.T) {
	t.Parallel()
	p := newPair(t, time.Hour, 0)
	foreign := spiffeid.RequireTrustDomainFromString("edge.test")
	abroad := spiffeid.RequireFromPath(foreign, "/agent")
	foreignAPI := newAPI(t, devworkload.Config{TrustDomain: foreign, Entries: entries(abroad)}).start()
	agent := ready(t, workload.Config{Socket: foreignAPI.socket()})

	if err := call(t, agent.dial(t, p.server.address, principal)); err == nil || !strings.Contains(err.Error(), "no bundle for the trust domain hub.test") || !strings.Contains(err.Error(), "--federates-with hub.test") {
		t.Errorf("before federation: %v", err)
	}
	if err := foreignAPI.SetFederated(p.hubAPI.Bundle()); err != nil {
		t.Fatal(err)
	}
	if err := p.hubAPI.SetFederated(foreignAPI.Bundle()); err != nil {
		t.Fatal(err)
	}
	agent.waitFor(t, "the hub's bundle", func() bool { _, err := agent.GetX509BundleForTrustDomain(domain); return err == nil })
	p.hub.waitFor(t, "the agent's bundle", func() bool { _, err := p.hub.GetX509BundleForTrustDomain(foreign); return err == nil })
	if err := call(t, agent.dial(t, p.server.address, principal)); err != nil {
		t.Fatal(err)
	}
	if last := p.server.health.peers[len(p.server.health.peers)-1]; last.ID != abroad {
		t.Errorf("peer is %s, want %s", last.ID, abroad)
	}
}

// TestRotation keeps one stream open while both leaves and the authority are
// renewed several times, and makes a new connection at every change.
func TestRotation(t *testing.T) {
	t.Parallel()
	p := newPair(t, 6*time.Second, 3*time.Second)
	stream, err := p.edge.dial(t, p.server.address, principal).Watch(kit.Context(t), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	broken := make(chan error, 1)
	go func() {
		for {
			if _, err := stream.Recv(); err != nil {
				broken <- err
				return
			}
		}
	}()

	trusted := func() []string {
		b, err := p.hub.GetX509BundleForTrustDomain(domain)
		if err != nil {
			t.Fatal(err)
		}
		var serials []string
		for _, root := range b.X509Authorities() {
			serials = append(serials, root.SerialNumber.String())
		}
		return serials
	}
	firstRoot := trusted()[0]
	if err := p.hubAPI.RotateCA(); err != nil {
		t.Fatal(err)
	}
	leaves := map[string]bool{}
	deadline := time.After(kit.Patience)
	for {
		hub, agent := p.hub.Updated(), p.edge.Updated()
		if err := call(t, p.edge.dial(t, p.server.address, principal)); err != nil {
			t.Fatalf("a handshake failed after %d leaves: %v", len(leaves), err)
		}
		for _, s := range []*testSource{p.hub, p.edge} {
			svid, err := s.GetX509SVID()
			if err != nil {
				t.Fatal(err)
			}
			leaves[svid.Certificates[0].SerialNumber.String()] = true
		}
		if len(leaves) >= 6 && !slices.Contains(trusted(), firstRoot) {
			break // renewed more than once, and the old root is gone
		}
		select {
		case <-hub:
		case <-agent:
		case err := <-broken:
			t.Fatalf("the stream broke after %d leaves: %v", len(leaves), err)
		case <-deadline:
			t.Fatalf("only %d leaves, roots %v", len(leaves), trusted())
		}
	}
	select {
	case err := <-broken:
		t.Errorf("the stream broke: %v", err)
	default:
	}
	for i, peer := range p.server.health.peers {
		if peer.ID != edge || p.server.health.errs[i] != nil {
			t.Errorf("peer %v, %v", peer, p.server.health.errs[i])
		}
	}
}
