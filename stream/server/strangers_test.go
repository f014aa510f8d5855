package server_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream/server"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/test/kit"
	"github.com/argomesh/argomesh/test/kit/spiffekit"
)

// insist makes refused calls on a connection, one after the other without a pause, until
// the test ends. Its second call is over when it returns.
func insist(t *testing.T, cc *grpc.ClientConn) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	begun, done := make(chan struct{}, 2), make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			// Nothing is waited for but the way to the server, so that it always calls.
			if s, err := streampb.NewStreamClient(cc).Connect(ctx, grpc.WaitForReady(true)); err == nil {
				_, _ = s.Recv()
			}
			select {
			case begun <- struct{}{}:
			default:
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	for range cap(begun) {
		select {
		case <-begun:
		case <-time.After(kit.Patience):
			t.Fatal("a stranger is not even refused")
		}
	}
}

// Anyone who is refused again and again does not keep agents from connecting, whether he has
// an SVID of no one's or nothing at all.
func TestRefusedCallersMakeRoom(t *testing.T) {
	byTokens := server.Method{
		Name: identity.MethodJWT, Credentials: tlsOnly(t), Authenticate: authenticate, Renew: peerOf, Prove: prove,
	}
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	byToken, err := byTokens.On(raw)
	if err != nil {
		t.Fatal(err)
	}
	h := newHub(t, func(c *server.Config) { c.MaxConnections, c.HandshakeTimeout = 4, handshakeTime }, byToken)
	stranger := h.trust.Source(strangerID).ClientCredentials(identity.AllowIDs(principalID))
	for range 4 {
		insist(t, h.dial(stranger).cc)
		insist(t, h.dialAt(raw.Addr().String(), anyTLS()).cc)
	}
	h.as(edge1ID).connect("edge-1").alive(t)
	s, _, err := h.dialAt(raw.Addr().String(), anyTLS()).open(token(edge1ID, time.Hour), nonce)
	if err != nil {
		t.Fatalf("an agent with a token: %v", err)
	}
	s.alive(t)
}

// A connection ends soon after the refusal of its call, whatever it calls then, and its
// caller is told why.
func TestRefusedConnectionsEnd(t *testing.T) {
	h := newHub(t, nil)
	c := h.as(strangerID)
	s, err := c.call(helloFrame(t, "edge-1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.end(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a stranger's call ends with %v", err)
	}
	insist(t, c.cc)
	h.waitMetric("argomesh_stream_strangers_ended_total", "refused", 2)
}

// Of those who are neither refused nor admitted, the address that has the most gives way,
// so that who is alone at its own is not crowded out, however slow it is.
func TestCrowdedAddressesGiveWay(t *testing.T) {
	h := newHub(t, func(c *server.Config) { c.MaxConnections = 40 }) // four strangers
	slow := silent(t, h.address, "127.0.0.2")
	var crowd []net.Conn
	for range 8 {
		crowd = append(crowd, silent(t, h.address, "127.0.0.3"))
	}
	h.as(edge1ID).connect("edge-1").alive(t)
	h.waitMetric("argomesh_stream_strangers_ended_total", "crowded", 5)
	if !ended(t, crowd[0]) {
		t.Error("the first of the crowd has kept its connection")
	}
	creds := h.trust.Source(edge2ID).ClientCredentials(identity.AllowIDs(principalID))
	cc, err := grpc.NewClient("passthrough:///slow", grpc.WithTransportCredentials(creds), grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return slow, nil }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	(&caller{t: t, cc: cc}).connect("edge-2").alive(t)
}

// One agent has its connections and streams, and not those of others.
func TestConnectionsOfOneAgent(t *testing.T) {
	h := newHub(t, func(c *server.Config) { c.MaxAgentConnections = 2 })
	first, second := h.as(edge1ID), h.as(edge1ID)
	one := first.connect("edge-1")
	second.connect("edge-1").alive(t)
	third := h.as(edge1ID)
	if _, _, err := third.try(helloFrame(t, "edge-1")); status.Code(err) != codes.Aborted {
		t.Errorf("the third connection of an agent: %v, want to be told to come later", err)
	}
	h.as(edge2ID).connect("edge-2").alive(t)
	first.connect("edge-1").alive(t) // on a connection that it has
	for range 5 {
		first.connect("edge-1").alive(t)
	}
	if _, _, err := first.try(helloFrame(t, "edge-1")); status.Code(err) != codes.Aborted {
		t.Errorf("the ninth stream of an agent: %v, want to be told to come later", err)
	}
	one.alive(t)
	if err := second.cc.Close(); err != nil {
		t.Fatal(err)
	}
	deadline := kit.Context(t)
	for {
		_, _, err := third.try(helloFrame(t, "edge-1"))
		if err == nil {
			break
		}
		if deadline.Err() != nil {
			t.Fatalf("a connection is not taken after another has ended: %v", err)
		}
	}
}

// A proxy of this pod carries the calls of many, so that its connection is not ended for
// one of them.
func TestConnectionsOfAProxyStay(t *testing.T) {
	h, _, byToken, _ := newMethodHub(t)
	c := h.dialAt(byToken, insecure.NewCredentials())
	s, _, err := c.open(token(edge1ID, time.Hour), nonce)
	if err != nil {
		t.Fatal(err)
	}
	insist(t, c.cc)
	s.alive(t)
	if got := h.metric("argomesh_stream_strangers", ""); got != 0 {
		t.Errorf("argomesh_stream_strangers = %v", got)
	}
}

// silent is a connection from an address, on which nothing is said.
func silent(t *testing.T, to, from string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(kit.Context(t), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ended waits for the end of a connection, on which a server of TLS says nothing first.
func ended(t *testing.T, c net.Conn) bool {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(kit.Patience)); err != nil {
		t.Fatal(err)
	}
	_, err := c.Read(make([]byte, 1))
	return err != nil && !isTimeout(err)
}

// tlsOnly is a server's end of TLS that asks for no certificate.
func tlsOnly(t *testing.T) credentials.TransportCredentials {
	t.Helper()
	return spiffekit.New(t, hubDomain).Source(principalID).TokenServerCredentials(zerolog.Nop())
}

// anyTLS is a caller's end of it, who has no certificate.
func anyTLS() credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}) // who answers does not matter here
}

// waitMetric waits until a counter has at least a value.
func (h *hub) waitMetric(name, label string, atLeast float64) {
	h.t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for ctx := kit.Context(h.t); h.metric(name, label) < atLeast; {
		select {
		case <-look.C:
		case <-ctx.Done():
			h.t.Fatalf("%s{%s} = %v, want %v or more", name, label, h.metric(name, label), atLeast)
		}
	}
}

// Who ends its stream and starts over, again and again, is told to come later; others, and
// what it has open, go on, and it gets through in the end.
func TestWhoBeginsTooOftenComesLater(t *testing.T) {
	h := newHub(t, nil)
	other := h.as(edge2ID).connect("edge-2")
	agent := h.as(edge1ID)
	begun := 0
	for ; begun < 200; begun++ {
		s, _, err := agent.try(helloFrame(t, "edge-1"))
		if err == nil {
			_ = s.CloseSend() // it ends
			_ = s.end()       // so that the next does not supersede it
			continue
		}
		if status.Code(err) != codes.Aborted {
			t.Fatalf("it is refused by %v, want to be told to come later", err)
		}
		break
	}
	if begun < 100 || begun == 200 {
		t.Errorf("it began %d times in a row", begun)
	}
	other.alive(t)
	h.as(edge2ID).connect("edge-2").alive(t)
	kit.Eventually(t, "it never gets through", func() bool {
		s, _, err := h.as(edge1ID).try(helloFrame(t, "edge-1"))
		if err == nil {
			s.alive(t)
		}
		return err == nil
	})
}
