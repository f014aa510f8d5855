// Package spiffekit has trust domains for tests: a CA, Workload APIs with it, and the identities
// that these hand out. It is imported by tests only.
package spiffekit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials"

	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/test/kit"
)

// Domain is one trust domain: a CA that Workload APIs share, one for each workload.
type Domain struct {
	// CA signs whatever a test wants.
	CA *devworkload.Server
	// Federated are the bundles that each Workload API that is made from now on hands out
	// beside that of the domain.
	Federated []*spiffebundle.Bundle

	t   testing.TB
	td  spiffeid.TrustDomain
	dir string
}

// New returns a domain that ends with the test.
func New(t testing.TB, td spiffeid.TrustDomain) *Domain {
	t.Helper()
	dir, err := os.MkdirTemp("", "td") // short, for the sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ca, err := devworkload.New(devworkload.Config{TrustDomain: td, CADir: filepath.Join(dir, "ca")})
	if err != nil {
		t.Fatal(err)
	}
	return &Domain{CA: ca, t: t, td: td, dir: dir}
}

// Dir is where its files and sockets are.
func (d *Domain) Dir() string { return d.dir }

// Serve runs a Workload API until the test ends, and returns its address.
func Serve(t testing.TB, cfg devworkload.Config) (api *devworkload.Server, address string) {
	t.Helper()
	api, err := devworkload.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "wl") // short, for the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := devworkload.Listen(context.Background(), socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, func(ctx context.Context) error { return api.Run(ctx, l) })
	return api, "unix://" + socket
}

// Source is the identity of a workload, kept fresh until the test ends.
func (d *Domain) Source(id spiffeid.ID) *workload.Source {
	d.t.Helper()
	s, _ := d.Workload(devworkload.Entry{ID: id}, 0)
	return s
}

// Workload is Source for an entry, with its Workload API, whose JWT-SVIDs live for jwtTTL;
// zero for the default.
func (d *Domain) Workload(entry devworkload.Entry, jwtTTL time.Duration) (*workload.Source, *devworkload.Server) {
	d.t.Helper()
	api, address := Serve(d.t, devworkload.Config{
		TrustDomain: d.td, CADir: filepath.Join(d.dir, "ca"), Entries: []devworkload.Entry{entry}, JWTTTL: jwtTTL,
	})
	if err := api.SetFederated(d.Federated...); err != nil {
		d.t.Fatal(err)
	}
	source, err := workload.New(workload.Config{Socket: address, JWTBundles: true, Metrics: prometheus.NewRegistry()})
	if err != nil {
		d.t.Fatal(err)
	}
	kit.Background(d.t, source.Run)
	if err := source.WaitReady(kit.Context(d.t)); err != nil {
		d.t.Fatal(err)
	}
	return source, api
}

// Certificate is a certificate of the test's choice, without its key.
func (d *Domain) Certificate(leaf devworkload.Leaf) *x509.Certificate {
	d.t.Helper()
	cert, err := d.CA.Sign(leaf)
	if err != nil {
		d.t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		d.t.Fatal(err)
	}
	return parsed
}

// Leaf is the credentials of a client with a certificate of the test's choice, which is
// never renewed. It trusts every server.
func (d *Domain) Leaf(leaf devworkload.Leaf) credentials.TransportCredentials {
	d.t.Helper()
	cert, err := d.CA.Sign(leaf)
	if err != nil {
		d.t.Fatal(err)
	}
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		InsecureSkipVerify: true, // an SVID has no host name; who the server is matters to other tests
	})
}
