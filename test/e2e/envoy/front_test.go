//go:build linux

package envoy

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/mesh/xds"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
	"github.com/argomesh/argomesh/test/kit"
	"github.com/argomesh/argomesh/test/kit/certkit"
)

const (
	tokenIssuer   = "https://argomesh.e2e.test"
	tokenAudience = "argomesh-resource-proxy"
	// beyondDrain is more than the drain time of an Envoy of the harness.
	beyondDrain = 3 * time.Second
	// shortLife is that of a certificate that rotates while a test looks.
	shortLife = 4 * time.Second
)

// front is an Envoy with what it needs beside it: a Workload API, an xDS server and
// someone upstream. Only Envoy is a process.
type front struct {
	h          *harness.Harness
	identities *devworkload.Server
	life       time.Duration // of Envoy's certificate, which is renewed half-way
	envoy      *harness.Sidecar
	bootstrap  []string // more arguments for its bootstrap
	address    string   // of the resource proxy
	stream     string   // address of the stream listener, if there is one
	callRate   mesh.Rate
	upstream   *upstream

	server    *xds.Server
	metrics   *prometheus.Registry
	xdsSocket string
	stopXDS   func()

	snapshot mesh.Snapshot
	signer   signer
}

// newFront starts a front for the agents a and b. change may alter the snapshot first.
func newFront(t *testing.T, change func(*front, *mesh.Snapshot)) *front {
	t.Helper()
	harnesstest.SkipMissing(t, "envoy")
	f := &front{h: harnesstest.New(t), signer: newSigner(t, "key-1"), life: time.Hour}
	f.upstream = startUpstream(t, f.h.Path("upstream.sock"))
	var err error
	if f.address, err = f.h.Address(); err != nil {
		t.Fatal(err)
	}
	f.snapshot = mesh.Snapshot{
		Self: spiffeid.RequireFromString(env.PrincipalID),
		ResourceProxy: &mesh.ResourceProxy{
			Listen: meshAddress(t, f.address), Principal: meshAddress(t, "unix://"+f.h.Path("upstream.sock")),
			Tokens: mesh.Tokens{Issuer: tokenIssuer, Audience: tokenAudience, Leeway: time.Minute, Keys: []mesh.Key{f.signer.public()}},
			Agents: map[identity.AgentName]mesh.Agent{kit.Agent(t, "a"): {}, kit.Agent(t, "b"): {}},
		},
	}
	if change != nil {
		change(f, &f.snapshot)
	}
	f.startIdentities(t)
	f.xdsSocket = f.h.Path("xds.sock")
	f.startXDS(t)
	f.set(t)
	f.startEnvoy(t)
	return f
}

func (f *front) startIdentities(t *testing.T) {
	t.Helper()
	var err error
	f.identities, err = devworkload.New(devworkload.Config{
		TrustDomain: spiffeid.RequireTrustDomainFromString(env.TrustDomain),
		Entries:     []devworkload.Entry{{ID: spiffeid.RequireFromString(env.PrincipalID), TTL: f.life}},
		Prepare:     time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := devworkload.Listen(t.Context(), f.h.Path("workload.sock"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, func(ctx context.Context) error { return f.identities.Run(ctx, l) })
}

// startXDS starts a server that knows nothing yet, as a principal does.
func (f *front) startXDS(t *testing.T) {
	t.Helper()
	f.metrics = prometheus.NewRegistry()
	var err error
	f.server, err = xds.New(xds.Config{Metrics: f.metrics, Log: zerolog.New(zerolog.NewTestWriter(t))})
	if err != nil {
		t.Fatal(err)
	}
	l, err := devworkload.Listen(t.Context(), f.xdsSocket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.stopXDS = kit.Background(t, func(ctx context.Context) error { return f.server.Run(ctx, l) })
}

func (f *front) startEnvoy(t *testing.T) {
	t.Helper()
	var err error
	if f.envoy, err = f.h.StartSidecar(t.Context(), harness.SidecarConfig{
		Name: "envoy", XDS: "unix://" + f.xdsSocket, WorkloadAPI: "unix://" + f.h.Path("workload.sock"), Bootstrap: f.bootstrap,
	}); err != nil {
		t.Fatal(err)
	}
}

// set hands the snapshot to the server.
func (f *front) set(t *testing.T) {
	t.Helper()
	if err := f.server.Set(f.snapshot); err != nil {
		t.Fatal(err)
	}
}

// change alters the resource proxy in a copy of the snapshot, and sets it.
func (f *front) change(t *testing.T, alter func(*mesh.ResourceProxy)) {
	t.Helper()
	proxy := *f.snapshot.ResourceProxy
	proxy.Agents = maps.Clone(proxy.Agents)
	proxy.Tokens.Keys = slices.Clone(proxy.Tokens.Keys)
	alter(&proxy)
	f.snapshot.ResourceProxy = &proxy
	f.set(t)
}

// GetX509BundleForTrustDomain implements x509bundle.Source with the roots of the moment.
func (f *front) GetX509BundleForTrustDomain(spiffeid.TrustDomain) (*x509bundle.Bundle, error) {
	return f.identities.Bundle().X509Bundle(), nil
}

// dial connects as a caller does.
func (f *front) dial(ctx context.Context) (net.Conn, error) {
	dialer := tls.Dialer{Config: f.tlsConfig()}
	return dialer.DialContext(ctx, "tcp", f.address)
}

// tlsConfig is for a caller: Envoy must be the principal.
func (f *front) tlsConfig() *tls.Config {
	return tlsconfig.TLSClientConfig(f, tlsconfig.AuthorizeID(spiffeid.RequireFromString(env.PrincipalID)))
}

// client is an HTTP/1.1 client that keeps no connection.
func (f *front) client() *http.Client {
	return &http.Client{Timeout: env.Patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialTLSContext:    func(ctx context.Context, _, _ string) (net.Conn, error) { return f.dial(ctx) },
	}}
}

// get gets a path with a token and returns the status and the body.
func (f *front) get(t *testing.T, path, token string) (int, string) {
	t.Helper()
	status, body, err := f.tryGet(t.Context(), path, token)
	if err != nil {
		t.Fatal(err)
	}
	return status, body
}

func (f *front) tryGet(ctx context.Context, path, token string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+f.address+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := f.client().Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }() // only read from
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

// raw sends bytes over TLS and returns the status and body of the answer.
func (f *front) raw(t *testing.T, request string) (int, string) {
	t.Helper()
	conn, err := f.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(env.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }() // only read from
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// stat returns one of Envoy's statistics.
func (f *front) stat(t *testing.T, name string) float64 {
	t.Helper()
	return env.EnvoyStatistic(t, f.envoy, name)
}

// signer signs tokens.
type signer struct {
	id  string
	key *ecdsa.PrivateKey
}

func newSigner(t *testing.T, id string) signer {
	t.Helper()
	return signer{id, certkit.Key(t, elliptic.P256())}
}

func (s signer) public() mesh.Key { return mesh.Key{ID: s.id, Public: &s.key.PublicKey} }

// token signs a good token for an agent, or one whose claims change altered.
func (s signer) token(t *testing.T, agent string, change ...func(map[string]any)) string {
	t.Helper()
	now := time.Now()
	claims := map[string]any{
		"iss": tokenIssuer, "aud": []string{tokenAudience}, "sub": agent, "jti": "id-of-" + agent,
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	for _, c := range change {
		c(claims)
	}
	made, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: s.key, KeyID: s.id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(made).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// upstream plays the principal: it tells what it was asked, watches for ever, and
// echoes what is upgraded.
type upstream struct {
	requests atomic.Int64
	endless  atomic.Int64 // bytes written of answers without an end

	mu     sync.Mutex // guards what follows
	last   *http.Request
	behind string // what came behind the newest request that was denied
}

func startUpstream(t *testing.T, socket string) *upstream {
	t.Helper()
	u := &upstream{}
	l, err := devworkload.Listen(t.Context(), socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: u, ReadHeaderTimeout: 10 * time.Second}
	kit.Background(t, func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { _ = server.Close() })
		defer stop()
		if err := server.Serve(l); err != http.ErrServerClosed {
			return err
		}
		return nil
	})
	return u
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.requests.Add(1)
	u.mu.Lock()
	u.last = r
	u.mu.Unlock()
	switch {
	case strings.HasSuffix(r.URL.Path, "/deny"):
		u.deny(w)
	case r.Header.Get("Upgrade") != "":
		u.echo(w, r)
	case strings.HasSuffix(r.URL.Path, "/body"):
		whole, _ := io.ReadAll(r.Body) // what is missing is seen by the caller
		_, _ = w.Write(whole)
	case strings.HasSuffix(r.URL.Path, "/endless"):
		for chunk := make([]byte, 32<<10); ; {
			n, err := w.Write(chunk)
			u.endless.Add(int64(n))
			if err != nil {
				return
			}
		}
	case strings.HasSuffix(r.URL.Path, "/watch"):
		for tick := 0; r.Context().Err() == nil; tick++ {
			if _, err := fmt.Fprintln(w, tick); err != nil {
				return
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				return
			}
			wait := time.NewTimer(watchPeriod)
			select {
			case <-wait.C:
			case <-r.Context().Done():
			}
		}
	default:
		_, _ = fmt.Fprintf(w, "%s %s", r.Method, r.RequestURI) // the caller may be gone
	}
}

// watchPeriod is between two lines of a watch.
const watchPeriod = 50 * time.Millisecond

// deny refuses a request after a while, and keeps what came behind it until then. A
// server that goes on reading would take that for the next request.
func (u *upstream) deny(w http.ResponseWriter) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetReadDeadline(time.Now().Add(denyDelay)); err != nil {
		return
	}
	behind, _ := io.ReadAll(buffered) // until the deadline
	u.mu.Lock()
	u.behind = string(behind)
	u.mu.Unlock()
	_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n") // the caller may be gone
}

// denyDelay is far more than Envoy takes to forward what it has.
const denyDelay = 300 * time.Millisecond

func (u *upstream) echo(w http.ResponseWriter, r *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade")); err != nil {
		return
	}
	_, _ = io.Copy(conn, buffered) // until the caller ends it
}

// request returns the newest request.
func (u *upstream) request() *http.Request {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.last
}

func meshAddress(t *testing.T, s string) mesh.Address {
	t.Helper()
	a, err := mesh.ParseAddress(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}
