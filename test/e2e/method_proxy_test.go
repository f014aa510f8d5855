//go:build linux

package e2e

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
)

const (
	// foreignDomain is a trust domain with which the quiet world's principal federates.
	foreignDomain = "foreign.argomesh.test"
	// gatewayID is a gateway that the quiet world's principal trusts, sidecarID what is
	// in front of its listener of method header.
	gatewayID = "spiffe://" + trustDomain + "/ns/ingress/sa/gateway"
	sidecarID = "spiffe://" + trustDomain + "/ns/argocd/sa/principal"
	// gatewayName is the host name of a load balancer.
	gatewayName = "gateway.argomesh.test"
)

// listeners is the key stream.listeners of the principal.
func (w *quietWorld) listeners() []map[string]any {
	return []map[string]any{
		{"listen": w.byToken, "method": identity.MethodJWT, "plaintext": true},
		{"listen": w.byTokenTLS, "method": identity.MethodJWT},
		{"listen": w.byHeader, "method": identity.MethodHeader, "header": map[string]any{"trusted_proxies": []string{gatewayID}}},
	}
}

// authority returns the one of a trust domain, to sign what the proxies of a test
// need.
func (w *quietWorld) authority(t *testing.T, td string) *devworkload.Server {
	t.Helper()
	dir := w.h.Path("ca")
	if td == foreignDomain {
		dir = w.h.Path("foreign-ca")
	}
	ca, err := devworkload.New(devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString(td), CADir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func sign(t *testing.T, ca *devworkload.Server, leaf devworkload.Leaf) tls.Certificate {
	t.Helper()
	cert, err := ca.Sign(leaf)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func svid(id string) devworkload.Leaf { return devworkload.Leaf{URIs: []string{id}} }

// tokenOf returns a JWT-SVID of an identity of the authority in cfg.
func tokenOf(t *testing.T, cfg devworkload.Config, id string, audience ...string) string {
	t.Helper()
	cfg.Entries = []devworkload.Entry{{ID: spiffeid.RequireFromString(id)}}
	api, err := devworkload.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "tk") // short, for the socket
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "s")
	l, err := devworkload.Listen(t.Context(), socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- api.Run(ctx, l) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	token, err := workloadapi.FetchJWTSVID(ctx, jwtsvid.Params{Audience: audience[0], ExtraAudiences: audience[1:]}, workloadapi.WithAddr("unix://"+socket))
	if err != nil {
		t.Fatal(err)
	}
	return token.Marshal()
}

// startTerminator starts a load balancer that terminates TLS under gatewayName and passes
// the bytes on.
func startTerminator(t *testing.T, cert tls.Certificate, target string) (address string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var open sync.WaitGroup
	open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { pass(ctx, conn, target) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		open.Wait()
	})
	return l.Addr().String()
}

// pass joins conn with a connection to target until one of them ends.
func pass(ctx context.Context, conn net.Conn, target string) {
	defer func() { _ = conn.Close() }()
	var d net.Dialer
	behind, err := d.DialContext(ctx, "tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = behind.Close() }()
	stop := context.AfterFunc(ctx, func() {
		_ = conn.Close()
		_ = behind.Close()
	})
	defer stop()
	var both sync.WaitGroup
	for from, to := range map[net.Conn]net.Conn{conn: behind, behind: conn} {
		both.Go(func() {
			_, _ = io.Copy(to, from) // its end is that of the connection
			_ = to.Close()
		})
	}
	both.Wait()
}

// forwarder is a proxy as Envoy is one: it terminates mutual TLS and says in
// x-forwarded-client-cert who its client is.
type forwarder struct {
	id   string
	cert tls.Certificate
	// trusts are the bundles of the clients that it takes.
	trusts *x509bundle.Set
	// appends keeps what the client says in that header, and appends; otherwise it is
	// sanitized.
	appends bool
	// bare leaves out the certificate.
	bare bool
	// target is a forwarder, or with clear a listener without TLS.
	target string
	clear  bool
}

const forwarded = "x-forwarded-client-cert"

func startForwarder(t *testing.T, f *forwarder) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{
		Protocols:       new(http.Protocols),
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{f.cert}, InsecureSkipVerify: true}, // the next proxy is the test's own
	}
	scheme := "https"
	if f.clear {
		scheme = "http"
		transport.Protocols.SetUnencryptedHTTP2(true)
	} else {
		transport.Protocols.SetHTTP2(true)
	}
	quietly := log.New(io.Discard, "", 0)
	srv := &http.Server{
		ReadHeaderTimeout: handshakePatience,
		ErrorLog:          quietly,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{f.cert}, ClientAuth: tls.RequireAnyClientCert, VerifyConnection: f.verify},
		Handler: &httputil.ReverseProxy{
			// Without FlushInterval: what streams is flushed anyway, and an early flush would
			// cut a refusal, which is headers that end the stream, in two.
			Transport: transport, ErrorLog: quietly,
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(&url.URL{Scheme: scheme, Host: f.target})
				r.Out.Host = r.In.Host
				// Out's own cannot be closed, so that the transport would wait for more of what
				// the client sends, and the client for the answer of a server that wants no more.
				r.Out.Body = r.In.Body
				said := f.element(r.In.TLS.PeerCertificates[0])
				if claims := r.In.Header.Values(forwarded); f.appends && len(claims) > 0 {
					said = strings.Join(claims, ",") + "," + said
				}
				r.Out.Header.Set(forwarded, said)
			},
		},
	}
	done := make(chan error, 1)
	go func() { done <- srv.ServeTLS(l, "", "") }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		transport.CloseIdleConnections()
	})
	return l.Addr().String()
}

func (f *forwarder) verify(state tls.ConnectionState) error {
	_, _, err := x509svid.Verify(state.PeerCertificates, f.trusts)
	return err
}

// element is what Envoy writes of a client.
func (f *forwarder) element(client *x509.Certificate) string {
	sum := sha256.Sum256(client.Raw)
	said := "By=" + f.id + ";Hash=" + hex.EncodeToString(sum[:])
	if !f.bare {
		said += `;Cert="` + escapedPEM(client) + `"`
	}
	return said + `;Subject="O=argomesh";URI=` + client.URIs[0].String()
}

func escapedPEM(cert *x509.Certificate) string {
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}))
	return strings.NewReplacer("\n", "%0A", " ", "%20", "+", "%2B", "/", "%2F", "=", "%3D").Replace(text)
}

// trusting returns the bundles of authorities.
func trusting(cas ...*devworkload.Server) *x509bundle.Set {
	set := x509bundle.NewSet()
	for _, ca := range cas {
		set.Add(ca.Bundle().X509Bundle())
	}
	return set
}

// startSidecar starts a proxy in front of the principal's listener of method header.
func (w *quietWorld) startSidecar(t *testing.T, change func(*forwarder)) (address string) {
	t.Helper()
	ours := w.authority(t, trustDomain)
	f := &forwarder{
		id: sidecarID, cert: sign(t, ours, svid(sidecarID)), trusts: trusting(ours, w.authority(t, foreignDomain)),
		appends: true, target: w.byHeader, clear: true,
	}
	if change != nil {
		change(f)
	}
	return startForwarder(t, f)
}

// startGateway starts a gateway before a sidecar.
func (w *quietWorld) startGateway(t *testing.T, id, sidecar string) (address string) {
	t.Helper()
	ours := w.authority(t, trustDomain)
	return startForwarder(t, &forwarder{id: id, cert: sign(t, ours, svid(id)), trusts: trusting(ours), target: sidecar})
}
