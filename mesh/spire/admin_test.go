package spire_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/spire-api-sdk/proto/spire/api/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/mesh/spire/spiretest"
)

// authority signs SVIDs of one trust domain, reserved ones too.
type authority struct {
	root *x509.Certificate
	key  crypto.Signer
}

func newAuthority(t *testing.T, td spiffeid.TrustDomain) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := authority{key: key}
	a.root = a.sign(t, key, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: td.Name()}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, URIs: []*url.URL{td.ID().URL()},
	})
	return a
}

func (a authority) sign(t *testing.T, key crypto.Signer, template *x509.Certificate) *x509.Certificate {
	t.Helper()
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	parent := a.root
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// svid is an SVID of id, and its own source.
func (a authority) svid(t *testing.T, id spiffeid.ID) *x509svid.SVID {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := a.sign(t, key, &x509.Certificate{
		SerialNumber: big.NewInt(2), URIs: []*url.URL{id.URL()}, KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	})
	return &x509svid.SVID{ID: id, Certificates: []*x509.Certificate{leaf}, PrivateKey: key}
}

// serveTCP runs a server as SPIRE's on TCP: a client certificate is asked for, and need
// not be there.
func serveTCP(t *testing.T, server *spiretest.Server, a authority, id spiffeid.ID) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	svid := a.svid(t, id)
	pool := x509.NewCertPool()
	pool.AddCert(a.root)
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool,
		Certificates: []tls.Certificate{{Certificate: [][]byte{svid.Certificates[0].Raw}, PrivateKey: svid.PrivateKey}},
	}
	run(t, server, l, grpc.Creds(credentials.NewTLS(config)))
	return l.Addr().String()
}

func TestAdministratorsOverTCP(t *testing.T) {
	a := newAuthority(t, own)
	bundle := x509bundle.FromX509Authorities(own, []*x509.Certificate{a.root})
	admin := spiffeid.RequireFromString("spiffe://own.test/ops")
	server := spiretest.New(own)
	address := serveTCP(t, server, a, spire.ServerID(own))
	client := connect(t, spire.ClientConfig{Address: address, Credentials: spire.AdminCredentials(a.svid(t, admin), bundle, own)})

	if _, err := client.Observe(t.Context(), edge, nil); !errors.Is(err, spire.ErrDenied) || !strings.Contains(err.Error(), "authorization denied for method") {
		t.Errorf("without rights: %v", err)
	}
	if _, err := client.Bundle(t.Context()); err != nil {
		t.Errorf("what everybody may: %v", err)
	}
	server.SetAdmins(admin)
	if _, err := reconcile(t, client, edge, entriesOf(t, registration(nil))); err != nil {
		t.Errorf("by admin_ids: %v", err)
	}
	server.SetAdmins()
	foreign(t, server, func(e *types.Entry) { e.SpiffeId.Path, e.Admin = "/ops", true })
	if _, err := reconcile(t, client, edge, nil); err != nil {
		t.Errorf("by an entry: %v", err)
	}
}

func TestOnlyTheSpireServerIsSpokenTo(t *testing.T) {
	a, forger := newAuthority(t, own), newAuthority(t, own)
	bundle := x509bundle.FromX509Authorities(own, []*x509.Certificate{a.root})
	admin := a.svid(t, spiffeid.RequireFromString("spiffe://own.test/ops"))
	for title, address := range map[string]string{
		"a workload of the trust domain": serveTCP(t, spiretest.New(own), a, spiffeid.RequireFromString("spiffe://own.test/workload")),
		"an agent":                       serveTCP(t, spiretest.New(own), a, node),
		"another authority":              serveTCP(t, spiretest.New(own), forger, spire.ServerID(own)),
	} {
		client := connect(t, spire.ClientConfig{Address: address, Credentials: spire.AdminCredentials(admin, bundle, own)})
		if _, err := client.Bundle(t.Context()); !errors.Is(err, spire.ErrUnavailable) || !strings.Contains(err.Error(), "authentication handshake failed") {
			t.Errorf("%s: %v", title, err)
		}
	}
}
