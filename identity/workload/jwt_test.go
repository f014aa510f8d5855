package workload_test

import (
	"context"
	"crypto/elliptic"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/test/heap"
	"github.com/argomesh/argomesh/test/kit"
	"github.com/argomesh/argomesh/test/kit/certkit"
)

var foreignDomain = spiffeid.RequireTrustDomainFromString("foreign.test")

// callee is a gRPC server that asks authenticate who calls.
type callee struct {
	grpc_health_v1.UnimplementedHealthServer
	authenticate func(context.Context) (identity.Peer, error)
	peers        chan identity.Peer
	errs         chan error
}

func (c *callee) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	p, err := c.authenticate(ctx)
	c.peers <- p
	c.errs <- err
	return &grpc_health_v1.HealthCheckResponse{}, err
}

// callable runs a callee on l until the test ends.
func callable(t *testing.T, l net.Listener, creds credentials.TransportCredentials, authenticate func(context.Context) (identity.Peer, error)) *callee {
	t.Helper()
	c := &callee{authenticate: authenticate, peers: make(chan identity.Peer, 16), errs: make(chan error, 16)}
	srv := grpc.NewServer(grpc.Creds(creds))
	grpc_health_v1.RegisterHealthServer(srv, c)
	kit.Serve(t, srv, l)
	return c
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// check makes one call with metadata.
func check(t *testing.T, target string, creds credentials.TransportCredentials, pairs ...string) error {
	t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx := metadata.NewOutgoingContext(kit.Context(t), metadata.Pairs(pairs...))
	_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	return err
}

// tokenPair is a principal that checks tokens, and an edge that has them.
type tokenPair struct {
	api             *api // of both
	principal, edge *testSource
}

func newTokenPair(t *testing.T, jwtTTL time.Duration) *tokenPair {
	t.Helper()
	dir := shortDir(t)
	server := newAPI(t, devworkload.Config{Entries: entries(principal), CADir: dir, JWTTTL: jwtTTL}).start()
	own := newAPI(t, devworkload.Config{Entries: entries(edge), CADir: dir, JWTTTL: jwtTTL}).start()
	p := &tokenPair{api: server}
	p.principal = ready(t, workload.Config{Socket: server.socket(), JWTBundles: true})
	p.edge = ready(t, workload.Config{Socket: own.socket()})
	p.principal.waitFor(t, "the jwt bundle", func() bool {
		_, err := p.principal.GetJWTBundleForTrustDomain(domain)
		return err == nil
	})
	return p
}

func (s *testSource) token(t *testing.T, audiences ...string) string {
	t.Helper()
	svid, err := s.FetchToken(kit.Context(t), audiences...)
	if err != nil {
		t.Fatal(err)
	}
	return svid.Marshal()
}

func TestVerifyToken(t *testing.T) {
	t.Parallel()
	p := newTokenPair(t, 0)
	to := principal.String()
	good := p.edge.token(t, to)
	got, err := p.principal.PeerOfToken(good)
	if err != nil || got.ID != edge || got.Method != identity.MethodJWT {
		t.Fatalf("PeerOfToken() = %v, %v, want %s", got, err, edge)
	}
	if left := time.Until(got.NotAfter); left < 4*time.Minute || left > 5*time.Minute {
		t.Errorf("the proof lasts %s, want the token's five minutes", left)
	}
	if _, err := p.principal.VerifyToken(p.edge.token(t, to, "nonce"), to, "nonce"); err != nil {
		t.Errorf("VerifyToken() of two audiences = %v", err)
	}

	// Someone else's authorities: the same trust domain by name, and another one with
	// the same path.
	twin := ready(t, workload.Config{Socket: newAPI(t, devworkload.Config{Entries: entries(edge)}).start().socket()})
	foreignEdge := spiffeid.RequireFromPath(foreignDomain, edge.Path())
	foreignAPI := newAPI(t, devworkload.Config{TrustDomain: foreignDomain, Entries: entries(foreignEdge)}).start()
	foreign := ready(t, workload.Config{Socket: foreignAPI.socket()})

	key := certkit.Key(t, elliptic.P256())
	parsed, err := jwt.ParseSigned(good, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	kid := parsed.Headers[0].KeyID
	forged := func(alg jose.SignatureAlgorithm, key any, options *jose.SignerOptions, claims jwt.Claims) string {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, options)
		if err != nil {
			t.Fatal(err)
		}
		token, err := jwt.Signed(signer).Claims(claims).Serialize()
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	claims := jwt.Claims{Subject: edge.String(), Audience: jwt.Audience{to}, Expiry: jwt.NewNumericDate(time.Now().Add(time.Minute))}
	parts := strings.Split(good, ".")
	for name, tt := range map[string]struct {
		token     string
		audiences []string
		why       string
	}{
		"for another audience":             {p.edge.token(t, to+"-2"), []string{to}, "audience"},
		"for one of two audiences":         {good, []string{to, "nonce"}, "not for"},
		"for the other of two audiences":   {p.edge.token(t, "nonce"), []string{to, "nonce"}, "not for"},
		"for no audience asked for":        {good, nil, "no audience"},
		"of another authority, same name":  {twin.token(t, to), []string{to}, "no JWT authority"},
		"of a foreign domain":              {foreign.token(t, to), []string{to}, "no bundle"},
		"signed by nobody":                 {parts[0] + "." + parts[1] + ".", []string{to}, "unable"},
		"with the claims of another":       {parts[0] + "." + strings.Split(p.edge.token(t, "x"), ".")[1] + "." + parts[2], []string{to}, "unable"},
		"with the key id, but another key": {forged(jose.ES256, jose.JSONWebKey{Key: key, KeyID: kid}, nil, claims), []string{to}, "unable"},
		"without a key id":                 {forged(jose.ES256, key, nil, claims), []string{to}, "key id"},
		"by a shared secret":               {forged(jose.HS256, jose.JSONWebKey{Key: []byte(strings.Repeat("k", 32)), KeyID: kid}, nil, claims), []string{to}, "unable"},
		"of another type":                  {forged(jose.ES256, jose.JSONWebKey{Key: key, KeyID: kid}, (&jose.SignerOptions{}).WithType("at+jwt"), claims), []string{to}, "type"},
		"nothing":                          {"", []string{to}, "unable"},
		"longer than there are":            {good + strings.Repeat("A", identity.MaxTokenBytes), []string{to}, "bytes"},
	} {
		if got, err := p.principal.VerifyToken(tt.token, tt.audiences...); !errors.Is(err, identity.ErrUnauthenticated) || !strings.Contains(err.Error(), tt.why) || got != (identity.Peer{}) {
			t.Errorf("%s: VerifyToken() = %v, %v, want an error that says %q", name, got, err, tt.why)
		} else if tt.token != "" && strings.Contains(err.Error(), tt.token) {
			t.Errorf("%s: the error has the token in it", name)
		}
	}

	// Federated, the foreign one is itself, and no one else.
	if err := p.api.SetFederated(foreignAPI.Bundle()); err != nil {
		t.Fatal(err)
	}
	p.principal.waitFor(t, "the foreign bundle", func() bool {
		_, err := p.principal.GetJWTBundleForTrustDomain(foreignDomain)
		return err == nil
	})
	if got, err := p.principal.PeerOfToken(foreign.token(t, to)); err != nil || got.ID != foreignEdge {
		t.Errorf("PeerOfToken() of a federated domain = %v, %v, want %s", got, err, foreignEdge)
	}
	if n, _ := p.principal.metric(t, "argomesh_identity_jwt_bundles", ""); n != 2 {
		t.Errorf("argomesh_identity_jwt_bundles = %v, want 2", n)
	}
	if n, _ := p.principal.metric(t, "argomesh_identity_jwt_bundle_updates_total", ""); n < 2 {
		t.Errorf("argomesh_identity_jwt_bundle_updates_total = %v, want 2", n)
	}
	if err := p.api.SetFederated(); err != nil {
		t.Fatal(err)
	}
	p.principal.waitFor(t, "the foreign bundle to go", func() bool {
		_, err := p.principal.GetJWTBundleForTrustDomain(foreignDomain)
		return errors.Is(err, workload.ErrNoBundle)
	})
	if got, err := p.principal.PeerOfToken(foreign.token(t, to)); err == nil {
		t.Errorf("PeerOfToken() = %v when the federation has ended", got)
	}

	// The old and the new authority overlap.
	if err := p.api.RotateCA(); err != nil {
		t.Fatal(err)
	}
	p.principal.waitFor(t, "the second key", func() bool {
		b, err := p.principal.GetJWTBundleForTrustDomain(domain)
		return err == nil && len(b.JWTAuthorities()) == 2
	})
	if _, err := p.principal.PeerOfToken(good); err != nil {
		t.Errorf("PeerOfToken() of before the rotation = %v", err)
	}
}

func TestTokenEndsWhenItSays(t *testing.T) {
	t.Parallel()
	p := newTokenPair(t, 3*time.Second)
	token := p.edge.token(t, principal.String())
	got, err := p.principal.PeerOfToken(token)
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Until(got.NotAfter))
	if got, err := p.principal.PeerOfToken(token); !errors.Is(err, identity.ErrUnauthenticated) || !strings.Contains(err.Error(), "expired") {
		t.Errorf("PeerOfToken() = %v, %v of an expired token", got, err)
	}
}

func TestPeerFromToken(t *testing.T) {
	t.Parallel()
	p := newTokenPair(t, 0)
	l := listen(t, "tcp", "127.0.0.1:0")
	log := kit.NewLog()
	server := callable(t, l, p.principal.TokenServerCredentials(log.Logger()), p.principal.PeerFromToken)
	gateway, err := p.edge.GatewayCredentials(workload.Gateway{Authorize: identity.AllowIDs(principal)})
	if err != nil {
		t.Fatal(err)
	}
	bearer := "Bearer " + p.edge.token(t, principal.String())
	for name, tt := range map[string]struct {
		pairs []string
		ok    bool
	}{
		"a token":               {[]string{"authorization", bearer}, true},
		"the scheme in capital": {[]string{"authorization", "BEARER" + strings.TrimPrefix(bearer, "Bearer")}, true},
		"what a gateway says of its own connection": {[]string{"authorization", bearer, "x-forwarded-client-cert", "URI=spiffe://hub.test/gateway"}, true},
		"no token":           {nil, false},
		"two tokens":         {[]string{"authorization", bearer, "authorization", bearer}, false},
		"another scheme":     {[]string{"authorization", "Basic " + strings.TrimPrefix(bearer, "Bearer ")}, false},
		"no scheme":          {[]string{"authorization", strings.TrimPrefix(bearer, "Bearer ")}, false},
		"an empty token":     {[]string{"authorization", "Bearer "}, false},
		"a header, no token": {[]string{"x-forwarded-client-cert", "URI=" + edge.String()}, false},
	} {
		err := check(t, l.Addr().String(), gateway, tt.pairs...)
		got, reason := <-server.peers, <-server.errs
		if (err == nil) != tt.ok || tt.ok && got.ID != edge || !tt.ok && !errors.Is(reason, identity.ErrUnauthenticated) {
			t.Errorf("%s: PeerFromToken() = %v, %v", name, got, reason)
		}
	}

	// Who has a certificate too is refused before he can call.
	if err := check(t, l.Addr().String(), p.edge.ClientCredentials(identity.AllowIDs(principal)), "authorization", bearer); err == nil {
		t.Error("a client certificate is accepted where tokens count")
	}
	log.Wait(t, "reason", "second_method")
	if n, _ := p.principal.metric(t, "argomesh_identity_handshake_failures_total", "second_method"); n != 1 {
		t.Errorf("handshake_failures_total{second_method} = %v", n)
	}

	// In clear text from this machine only.
	path := filepath.Join(shortDir(t), "s")
	for network, address := range map[string]string{"unix": path, "tcp": "127.0.0.1:0"} {
		l := listen(t, network, address)
		server := callable(t, l, insecure.NewCredentials(), p.principal.PeerFromToken)
		target := l.Addr().String()
		if network == "unix" {
			target = "unix://" + target
		}
		if err := check(t, target, insecure.NewCredentials(), "authorization", bearer); err != nil {
			t.Errorf("PeerFromToken() over %s = %v", network, err)
		}
		<-server.peers
	}
	ctx := peer.NewContext(metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", bearer)),
		&peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3)}})
	if got, err := p.principal.PeerFromToken(ctx); !errors.Is(err, identity.ErrUnauthenticated) {
		t.Errorf("PeerFromToken() in clear text from elsewhere = %v, %v", got, err)
	}
	if got, err := p.principal.PeerFromToken(t.Context()); !errors.Is(err, identity.ErrUnauthenticated) {
		t.Errorf("PeerFromToken() without a call = %v, %v", got, err)
	}
}

// One method counts on a listener of X.509-SVIDs too.
func TestPeerFromContextRefusesOtherCredentials(t *testing.T) {
	t.Parallel()
	p := newTokenPair(t, 0)
	l := listen(t, "tcp", "127.0.0.1:0")
	server := callable(t, l, p.principal.ServerCredentials(kit.NewLog().Logger()), workload.PeerFromContext)
	creds := p.edge.ClientCredentials(identity.AllowIDs(principal))
	for name, tt := range map[string]struct {
		pairs []string
		ok    bool
	}{
		"nothing besides": {nil, true},
		"a token":         {[]string{"authorization", "Bearer " + p.edge.token(t, principal.String())}, false},
		"a header":        {[]string{"x-forwarded-client-cert", "URI=" + edge.String()}, false},
	} {
		err := check(t, l.Addr().String(), creds, tt.pairs...)
		if got, reason := <-server.peers, <-server.errs; (err == nil) != tt.ok || !tt.ok && !errors.Is(reason, identity.ErrUnauthenticated) {
			t.Errorf("%s: PeerFromContext() = %v, %v", name, got, reason)
		}
	}
}

func TestTokenIsKeptAndRenewed(t *testing.T) {
	t.Parallel()
	a := newAPI(t, devworkload.Config{Entries: entries(edge), X509TTL: time.Hour, JWTTTL: 6 * time.Second}).start()
	s := ready(t, workload.Config{Socket: a.socket()})
	token := s.Token(principal.String())
	get := func() (string, time.Time, time.Time) {
		t.Helper()
		svid, renewAt, err := token.Get(kit.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		return svid.Marshal(), renewAt, svid.Expiry
	}
	first, renewAt, _ := get()
	if left := time.Until(renewAt); left < time.Second || left > 3*time.Second {
		t.Errorf("renew in %s, want half of six seconds", left)
	}
	if again, _, _ := get(); again != first {
		t.Error("Get() does not keep a young token")
	}
	<-time.After(time.Until(renewAt))
	second, _, expiry := get()
	if second == first {
		t.Error("Get() does not renew a token of half its life")
	}
	if at, ok := s.metric(t, "argomesh_jwt_svid_not_after_timestamp_seconds", edge.String()); !ok || at != float64(expiry.Unix()) {
		t.Errorf("argomesh_jwt_svid_not_after_timestamp_seconds = %v, want %v", at, expiry.Unix())
	}

	// With the Workload API away the token is good until it expires, and then it is not.
	a.stop()
	s.waitFor(t, "the loss of the API to be seen", func() bool { return s.Degraded() != nil })
	if _, _, err := token.Get(kit.Context(t)); err != nil {
		t.Errorf("Get() = %v while the token is valid and the api away", err)
	}
	<-time.After(time.Until(expiry))
	if _, _, err := token.Get(kit.Context(t)); !errors.Is(err, workload.ErrNotReady) {
		t.Errorf("Get() = %v with an expired token and the api away", err)
	}
	if n, _ := s.metric(t, "argomesh_identity_jwt_svid_fetches_total", "failed"); n == 0 {
		t.Error("argomesh_identity_jwt_svid_fetches_total has no failure")
	}
	if _, ok := s.metric(t, "argomesh_jwt_svid_not_after_timestamp_seconds", ""); ok {
		t.Error("the metric of an expired token stays")
	}
	begin := time.Now()
	a.start()
	for back := false; !back; {
		updated := s.Updated()
		_, _, err := token.Get(kit.Context(t))
		if back = err == nil; !back {
			select {
			case <-updated:
			case <-time.After(100 * time.Millisecond):
			}
		}
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("Get() = %v 10 s after the api came back", err)
		}
	}

	// A withdrawn identity is not used, although its token still lives.
	if err := a.SetEntries(nil); err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, "the loss of the identity", func() bool { return s.Ready() != nil })
	if _, _, err := token.Get(kit.Context(t)); !errors.Is(err, workload.ErrNotReady) {
		t.Errorf("Get() = %v of a withdrawn identity", err)
	}
}

// Of several identities the token is that of the X.509-SVID that was chosen.
func TestTokenOfTheChosenIdentity(t *testing.T) {
	t.Parallel()
	other := spiffeid.RequireFromPath(domain, "/other")
	a := newAPI(t, devworkload.Config{Entries: []devworkload.Entry{{ID: other, Hint: "x"}, {ID: edge, Hint: "stream"}}}).start()
	for name, cfg := range map[string]workload.Config{
		"by id": {Socket: a.socket(), SPIFFEID: edge}, "by hint": {Socket: a.socket(), Hint: "stream"},
	} {
		s := ready(t, cfg)
		if svid, err := s.FetchToken(kit.Context(t), "a"); err != nil || svid.ID != edge {
			t.Errorf("%s: FetchToken() = %v, %v, want one of %s", name, svid, err, edge)
		}
		if _, err := s.FetchToken(kit.Context(t)); !errors.Is(err, workload.ErrNotReady) {
			t.Errorf("%s: FetchToken() for nobody = %v", name, err)
		}
	}
}

func TestNoTokenBeforeRun(t *testing.T) {
	s, err := workload.New(workload.Config{Socket: "unix:///nowhere", Metrics: prometheus.NewRegistry(), JWTBundles: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.FetchToken(t.Context(), "a"); !errors.Is(err, workload.ErrNotReady) {
		t.Errorf("FetchToken() = %v", err)
	}
	if p, err := s.VerifyToken("a.b.c", "a"); !errors.Is(err, identity.ErrUnauthenticated) || !errors.Is(err, workload.ErrNotReady) {
		t.Errorf("VerifyToken() = %v, %v", p, err)
	}
}

// JWT bundles outlive a Workload API that is away, and not the identity.
func TestJWTBundlesAreHeld(t *testing.T) {
	t.Parallel()
	a := newAPI(t, devworkload.Config{Entries: entries(principal)}).start()
	s := ready(t, workload.Config{Socket: a.socket(), JWTBundles: true})
	has := func() bool { _, err := s.GetJWTBundleForTrustDomain(domain); return err == nil }
	if !has() {
		t.Error("ready, and there is no bundle")
	}
	if err := s.Degraded(); err != nil {
		t.Errorf("Degraded() = %v", err)
	}
	a.stop()
	s.waitFor(t, "the loss of the API to be seen", func() bool { return s.Degraded() != nil })
	if !has() {
		t.Error("the bundle went with the workload api")
	}
	a.start()
	s.waitFor(t, "the return of the API", func() bool { return s.Degraded() == nil })
	if err := a.SetEntries(nil); err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, "the bundle to go with the identity", func() bool { return !has() })
	if err := a.SetEntries(entries(principal)); err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, "the bundle", has)
}

func TestWhile(t *testing.T) {
	t.Parallel()
	a := newAPI(t, devworkload.Config{Entries: entries(principal)}).start()
	s := ready(t, workload.Config{Socket: a.socket()})
	patient, stop := s.While(t.Context(), time.Hour)
	defer stop()
	held, stopHeld := s.While(t.Context(), time.Second)
	defer stopHeld()

	a.stop()
	s.waitFor(t, "the loss of the API to be seen", func() bool { return s.Degraded() != nil })
	if since := s.Withdrawn(); !since.IsZero() {
		t.Errorf("Withdrawn() = %s while the api is away", since)
	}
	a.start()
	s.waitFor(t, "the return of the API", func() bool { return s.Degraded() == nil })

	began := time.Now()
	if err := a.SetEntries(entries(spiffeid.RequireFromPath(domain, "/other"), edge)); err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, "the loss of the identity", func() bool { return s.Ready() != nil })
	since := s.Withdrawn()
	if since.Before(began) || since.After(time.Now()) {
		t.Errorf("Withdrawn() = %s, want since %s", since, began)
	}
	select {
	case <-held.Done():
	case <-time.After(kit.Patience):
		t.Fatal("While() does not end")
	}
	if took := time.Since(since); took < time.Second || !errors.Is(context.Cause(held), workload.ErrWithdrawn) {
		t.Errorf("While() ends after %s with cause %v", took, context.Cause(held))
	}
	if err := a.SetEntries(nil); err != nil { // another way to be without
		t.Fatal(err)
	}
	s.waitFor(t, "the other answer", func() bool { return strings.Contains(s.Ready().Error(), "issues no identity") })
	if again := s.Withdrawn(); !again.Equal(since) {
		t.Errorf("Withdrawn() = %s, want still since %s", again, since)
	}
	if patient.Err() != nil {
		t.Error("While() ends before its grace is over")
	}
	if err := a.SetEntries(entries(principal)); err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, "the identity to come back", func() bool { return s.Ready() == nil })
	if since := s.Withdrawn(); !since.IsZero() {
		t.Errorf("Withdrawn() = %s with an identity", since)
	}
	stop()
	<-patient.Done()
	if cause := context.Cause(patient); errors.Is(cause, workload.ErrWithdrawn) {
		t.Errorf("stop() ends with cause %v", cause)
	}
}

func TestBundleMetrics(t *testing.T) {
	t.Parallel()
	a := newAPI(t, devworkload.Config{Entries: entries(principal)}).start()
	s := ready(t, workload.Config{Socket: a.socket()})
	bundle, err := s.GetX509BundleForTrustDomain(domain)
	if err != nil {
		t.Fatal(err)
	}
	const name = "argomesh_identity_bundle_not_after_timestamp_seconds"
	if at, _ := s.metric(t, name, ""); at != float64(bundle.X509Authorities()[0].NotAfter.Unix()) {
		t.Errorf("%s = %v, want that of %v", name, at, bundle.X509Authorities()[0].NotAfter)
	}
	if err := a.SetEntries(nil); err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, "the loss of the identity", func() bool { return s.Ready() != nil })
	if at, _ := s.metric(t, name, ""); at != 0 {
		t.Errorf("%s = %v without a bundle", name, at)
	}
}

// Whatever a token is changed to, it is refused, or it is the token.
func FuzzVerifyToken(f *testing.F) {
	ca, err := devworkload.New(devworkload.Config{TrustDomain: domain, Entries: entries(principal, edge)})
	if err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(f.TempDir(), "s")
	l, err := devworkload.Listen(f.Context(), path, 0o600)
	if err != nil {
		f.Fatal(err)
	}
	kit.Background(f, func(ctx context.Context) error { return ca.Run(ctx, l) })
	s, err := workload.New(workload.Config{Socket: "unix://" + path, SPIFFEID: principal, JWTBundles: true, Metrics: prometheus.NewRegistry()})
	if err != nil {
		f.Fatal(err)
	}
	kit.Background(f, s.Run)
	for {
		updated := s.Updated()
		if _, err := s.GetJWTBundleForTrustDomain(domain); err == nil && s.Ready() == nil {
			break
		}
		<-updated
	}
	svid, err := s.FetchToken(f.Context(), principal.String())
	if err != nil {
		f.Fatal(err)
	}
	good := svid.Marshal()
	signed := good[:strings.LastIndex(good, ".")] // a signature can be written in several ways
	f.Add(good)
	f.Add(strings.Replace(good, ".", "..", 1))
	f.Add("eyJhbGciOiJub25lIn0." + strings.Split(good, ".")[1] + ".")
	f.Fuzz(func(t *testing.T, token string) {
		var p identity.Peer
		var err error
		if took := heap.Of(func() { p, err = s.PeerOfToken(token) }); took > mostTokenHeap {
			t.Errorf("%d bytes of heap for %d", took, len(token))
		}
		switch {
		case err == nil && !strings.HasPrefix(token, signed+"."):
			t.Fatalf("PeerOfToken(%q) = %v", token, p)
		case err != nil && (!errors.Is(err, identity.ErrUnauthenticated) || p != (identity.Peer{})):
			t.Fatalf("PeerOfToken(%q) = %v, %v", token, p, err)
		}
	})
}
