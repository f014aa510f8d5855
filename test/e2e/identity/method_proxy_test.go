//go:build linux

package identity

import (
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
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
)

const (
	sidecarID = "spiffe://" + env.TrustDomain + "/ns/argocd/sa/principal"
)

// authority returns the one of a trust domain, to sign what the proxies of a test
// need.
func authority(t *testing.T, w *env.Bare, td string) *devworkload.Server {
	t.Helper()
	dir := w.CADir
	if td == env.ForeignDomain {
		dir = w.ForeignCADir
	}
	ca, err := devworkload.New(devworkload.Config{TrustDomain: spiffeid.RequireTrustDomainFromString(td), CADir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return ca
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
		ReadHeaderTimeout: env.HandshakePatience,
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
				if claims := r.In.Header.Values(env.Forwarded); f.appends && len(claims) > 0 {
					said = strings.Join(claims, ",") + "," + said
				}
				r.Out.Header.Set(env.Forwarded, said)
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
func startSidecar(t *testing.T, w *env.Bare, change func(*forwarder)) (address string) {
	t.Helper()
	ours := authority(t, w, env.TrustDomain)
	f := &forwarder{
		id: sidecarID, cert: env.SignLeaf(t, ours, env.LeafOf(sidecarID)), trusts: trusting(ours, authority(t, w, env.ForeignDomain)),
		appends: true, target: w.ByHeader, clear: true,
	}
	if change != nil {
		change(f)
	}
	return startForwarder(t, f)
}

// startGateway starts a gateway before a sidecar.
func startGateway(t *testing.T, w *env.Bare, id, sidecar string) (address string) {
	t.Helper()
	ours := authority(t, w, env.TrustDomain)
	return startForwarder(t, &forwarder{id: id, cert: env.SignLeaf(t, ours, env.LeafOf(id)), trusts: trusting(ours), target: sidecar})
}
