package server_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/server"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/test/kit"
)

// tokens is a method whose tokens are "<spiffe id> <duration>", good for so long from
// the call on.
type tokens struct{ renewed chan server.Session }

func peerOf(token string) (identity.Peer, error) {
	text, life, ok := strings.Cut(token, " ")
	d, err := time.ParseDuration(life)
	if !ok || err != nil {
		return identity.Peer{}, identity.ErrUnauthenticated
	}
	id, err := spiffeid.FromString(text)
	return identity.Peer{ID: id, NotAfter: time.Now().Add(d), Method: identity.MethodJWT}, err
}

func token(id spiffeid.ID, life time.Duration) string { return id.String() + " " + life.String() }

func authenticate(ctx context.Context) (identity.Peer, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if len(md.Get("token")) != 1 {
		return identity.Peer{}, identity.ErrUnauthenticated
	}
	return peerOf(md.Get("token")[0])
}

func prove(_ context.Context, to spiffeid.ID, nonce stream.Nonce) (string, error) {
	if to == edge2ID {
		return "", errors.New("the workload api is away")
	}
	return "proof for " + to.String() + " and " + nonce.Audience(), nil
}

// newMethodHub runs a server on three listeners: its own, of mutual TLS; one of
// tokens; and one whose agents are to prove themselves again.
func newMethodHub(t *testing.T) (h *hub, methods *tokens, byToken, byHeader string) {
	t.Helper()
	methods = &tokens{renewed: make(chan server.Session, 16)}
	dir := t.TempDir()
	var listeners []net.Listener
	for name, m := range map[string]server.Method{
		"token":  {Name: identity.MethodJWT, Credentials: insecure.NewCredentials(), Authenticate: authenticate, Renew: peerOf, Prove: prove},
		"header": {Name: identity.MethodHeader, Credentials: insecure.NewCredentials(), Authenticate: authenticate, Prove: prove, ProveAgain: true},
	} {
		raw, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		l, err := m.On(raw)
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
	}
	h = newHub(t, func(c *server.Config) {
		c.Renewed = func(s server.Session) { methods.renewed <- s }
		c.Grace = 300 * time.Millisecond
	}, listeners...)
	return h, methods, "unix://" + filepath.Join(dir, "token"), "unix://" + filepath.Join(dir, "header")
}

func (h *hub) dialAt(target string, creds credentials.TransportCredentials) *caller {
	h.t.Helper()
	cc, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds), grpc.WithDisableServiceConfig())
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = cc.Close() })
	return &caller{t: h.t, cc: cc}
}

// open says hello with a token and a nonce, and waits for the first answer.
func (c *caller) open(token string, nonce stream.Nonce) (frames, stream.Welcome, error) {
	c.t.Helper()
	return c.openAs("edge-1", token, nonce)
}

// openAs is open of a named agent.
func (c *caller) openAs(name, token string, nonce stream.Nonce) (frames, stream.Welcome, error) {
	c.t.Helper()
	ctx := metadata.AppendToOutgoingContext(kit.Context(c.t), "token", token)
	s, err := streampb.NewStreamClient(c.cc).Connect(ctx)
	if err != nil {
		return frames{}, stream.Welcome{}, err
	}
	hello := helloFrame(c.t, name)
	hello.GetHello().Nonce = []byte(nonce)
	_ = s.Send(hello) // what went wrong is what Recv returns
	frame, err := s.Recv()
	if err != nil {
		return frames{}, stream.Welcome{}, err
	}
	w, err := stream.ParseWelcome(frame)
	return frames{s}, w, err
}

// echoes checks that the connection lives.
func (f frames) echoes(t *testing.T) {
	t.Helper()
	if err := f.Send(stream.FrameOf(stream.Heartbeat{})); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Recv(); err != nil {
		t.Fatalf("the connection has ended: %v", err)
	}
}

var nonce = stream.Nonce(strings.Repeat("n", stream.NonceBytes))

// One server, one registry, one set of metrics; each listener has its own method.
func TestEachListenerHasItsMethod(t *testing.T) {
	h, _, byToken, byHeader := newMethodHub(t)
	good := token(edge1ID, time.Hour)

	h.as(edge1ID).connect("edge-1")
	if s := <-h.sessions; s.Peer.Method != identity.MethodX509 {
		t.Errorf("Session.Peer = %+v on the listener of mutual TLS", s.Peer)
	}
	_, w, err := h.dialAt(byToken, insecure.NewCredentials()).open(good, nonce)
	if err != nil {
		t.Fatal(err)
	}
	if s := <-h.sessions; s.Peer.Method != identity.MethodJWT || s.Peer.ID != edge1ID {
		t.Errorf("Session.Peer = %+v on the listener of tokens", s.Peer)
	}
	if w.Proof != "proof for "+edge1ID.String()+" and "+nonce.Audience() || w.Nonce != nonce || w.ProveAgain != 0 {
		t.Errorf("Welcome = %+v, want a proof for the agent and its nonce", w)
	}
	_, w, err = h.dialAt(byHeader, insecure.NewCredentials()).open(good, nonce)
	if err != nil {
		t.Fatal(err)
	}
	if w.Proof == "" || w.ProveAgain < 29*time.Minute || w.ProveAgain > 30*time.Minute {
		t.Errorf("Welcome = %+v, want to be asked again after half an hour", w)
	}
	if got := h.metric("argomesh_stream_connections", ""); got != 3 {
		t.Errorf("argomesh_stream_connections = %v, want 3", got)
	}
	for _, method := range []string{identity.MethodX509, identity.MethodJWT, identity.MethodHeader} {
		if line := h.log.Wait(t, "message", "agent connected", "method", method); line["spiffe_id"] != edge1ID.String() {
			t.Errorf("the log line is %v, without the spiffe id", line)
		}
	}

	// The credential of one listener is worth nothing on another.
	if _, _, err := h.dialAt(byToken, insecure.NewCredentials()).open("", nonce); status.Code(err) != codes.Unauthenticated {
		t.Errorf("no token: %v", err)
	}
	if _, _, err := h.as(strangerID).open(good, nonce); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a stranger's certificate with an agent's token: %v", err)
	}
	if _, _, err := h.dialAt(byToken, h.trust.Source(edge1ID).ClientCredentials(identity.AllowIDs(principalID))).open("", nonce); err == nil {
		t.Error("mutual TLS is answered where there is none")
	}
}

func TestProofs(t *testing.T) {
	h, _, byToken, _ := newMethodHub(t)
	if _, w, err := h.dialAt(byToken, insecure.NewCredentials()).open(token(edge1ID, time.Hour), ""); err != nil || w.Proof != "" || w.Nonce != "" {
		t.Errorf("Welcome = %+v, %v, want no proof of who does not ask for one", w, err)
	}
	if _, w, err := h.as(edge1ID).open("", nonce); err != nil || w.Proof != "" {
		t.Errorf("Welcome = %+v, %v, want no proof where TLS is one", w, err)
	}
	// edge-1's Agent is edge-2's too, and for that one there is no proof.
	h.registry.Set([]v1alpha1.Agent{agent("edge-1", edge1ID, edge2ID)})
	_, _, err := h.dialAt(byToken, insecure.NewCredentials()).open(token(edge2ID, time.Hour), nonce)
	if status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "workload") {
		t.Errorf("open() = %v, want no more than that it cannot be done now", err)
	}
	if got := h.metric("argomesh_stream_refused_total", "unproven"); got != 1 {
		t.Errorf("argomesh_stream_refused_total{unproven} = %v", got)
	}
	if _, _, err := h.dialAt(byToken, insecure.NewCredentials()).open(token(edge1ID, time.Hour), "short"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a short nonce: %v", err)
	}
}

func TestAuthorityIsThatOfTheNewestProof(t *testing.T) {
	h, methods, byToken, _ := newMethodHub(t)
	s, _, err := h.dialAt(byToken, insecure.NewCredentials()).open(token(edge1ID, 3*time.Second), nonce)
	if err != nil {
		t.Fatal(err)
	}
	first := <-h.sessions
	renew := func(life time.Duration) {
		t.Helper()
		if err := s.Send(stream.FrameOf(stream.Credential{Token: token(edge1ID, life)})); err != nil {
			t.Fatal(err)
		}
	}
	renew(8 * time.Second)
	renewed := <-methods.renewed
	if !renewed.Peer.NotAfter.After(first.Peer.NotAfter) || renewed.Connection != first.Connection {
		t.Errorf("Renewed() = %+v after %+v", renewed, first)
	}
	renew(time.Millisecond) // an older proof takes nothing away
	s.echoes(t)
	<-time.After(time.Until(first.Peer.NotAfter) + 400*time.Millisecond) // past its grace
	s.echoes(t)
	_, err = s.Recv()
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("Recv() = %v, want the end of the authority", err)
	}
	if late := time.Since(renewed.Peer.NotAfter); late < 250*time.Millisecond || late > 5*time.Second {
		t.Errorf("the connection ended %s after its newest proof, want 300ms", late)
	}
	if got := h.metric("argomesh_stream_renewals_total", "accepted"); got != 1 {
		t.Errorf("argomesh_stream_renewals_total{accepted} = %v", got)
	}
}

func TestBadCredentialsEndTheConnection(t *testing.T) {
	h, methods, byToken, byHeader := newMethodHub(t)
	good := token(edge1ID, time.Hour)
	ofToken := func() frames {
		s, _, err := h.dialAt(byToken, insecure.NewCredentials()).open(good, nonce)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for name, tt := range map[string]struct {
		open  func() frames
		token string
		code  codes.Code
	}{
		"that fails":           {ofToken, "nonsense", codes.Unauthenticated},
		"of another agent":     {ofToken, token(edge2ID, time.Hour), codes.Unauthenticated},
		"of a foreign domain":  {ofToken, "spiffe://other.test" + edge1ID.Path() + " 1h", codes.Unauthenticated},
		"of nothing":           {ofToken, "", codes.InvalidArgument},
		"that is too long":     {ofToken, strings.Repeat("t", identity.MaxTokenBytes+1), codes.InvalidArgument},
		"where TLS is a proof": {func() frames { return h.as(edge1ID).connect("edge-1") }, good, codes.InvalidArgument},
		"where a header is one": {func() frames {
			s, _, err := h.dialAt(byHeader, insecure.NewCredentials()).open(good, nonce)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}, good, codes.InvalidArgument},
	} {
		s := tt.open()
		if err := s.Send(stream.FrameOf(stream.Credential{Token: tt.token})); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); status.Code(err) != tt.code {
			t.Errorf("a credential %s: Recv() = %v, want %s", name, err, tt.code)
		}
	}
	if got := h.metric("argomesh_stream_renewals_total", "refused"); got != 3 {
		t.Errorf("argomesh_stream_renewals_total{refused} = %v, want 3", got)
	}
	select {
	case s := <-methods.renewed:
		t.Errorf("Renewed() = %+v", s)
	default:
	}
}

func TestRevocationOnEachMethod(t *testing.T) {
	h, _, byToken, byHeader := newMethodHub(t)
	open := map[string]frames{identity.MethodX509: h.as(edge1ID).connect("edge-1")}
	for method, at := range map[string]string{identity.MethodJWT: byToken, identity.MethodHeader: byHeader} {
		s, _, err := h.dialAt(at, insecure.NewCredentials()).open(token(edge1ID, time.Hour), nonce)
		if err != nil {
			t.Fatal(err)
		}
		open[method] = s
	}
	for range open {
		<-h.sessions
	}
	h.registry.Set(nil)
	for method, s := range open {
		if _, err := s.Recv(); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: Recv() = %v, want the revocation", method, err)
		}
	}
}

// What proxies say of their clients fits into the metadata of a call; more than that
// is refused before anybody reads it.
func TestMetadataIsBounded(t *testing.T) {
	h, _, byToken, _ := newMethodHub(t)
	hello := func(n int) error {
		ctx := metadata.AppendToOutgoingContext(kit.Context(t), "token", token(edge1ID, time.Hour), "x-forwarded-client-cert", strings.Repeat("c", n))
		s, err := streampb.NewStreamClient(h.dialAt(byToken, insecure.NewCredentials()).cc).Connect(ctx)
		if err != nil {
			return err
		}
		_ = s.Send(helloFrame(t, "edge-1")) // what went wrong is what Recv returns
		_, err = s.Recv()
		return err
	}
	if err := hello(60 << 10); err != nil {
		t.Errorf("60 KiB of metadata: %v", err)
	}
	if err := hello(64 << 10); err == nil {
		t.Error("64 KiB and more of metadata are taken")
	}
}

func TestMethodsAreComplete(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for name, m := range map[string]server.Method{
		"nothing":               {},
		"without authenticate":  {Name: "x", Credentials: insecure.NewCredentials()},
		"without credentials":   {Name: "x", Authenticate: workload.PeerFromContext},
		"with no more than one": {Renew: peerOf},
		"without a name":        {Credentials: insecure.NewCredentials(), Authenticate: workload.PeerFromContext},
	} {
		if _, err := m.On(l); err == nil {
			t.Errorf("%s: On() = nil", name)
		}
	}
}
