package serverapi_test

import (
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/spire-api-sdk/proto/spire/api/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/mesh/spire/serverapi"
	"github.com/argomesh/argomesh/mesh/spire/spiretest"
	"github.com/argomesh/argomesh/test/kit/certkit"
)

// serveTCP runs a server as SPIRE's on TCP: a client certificate is asked for, and need
// not be there.
func serveTCP(t *testing.T, server *spiretest.Server, a certkit.Pair, id spiffeid.ID) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	svid := a.SVID(t, id)
	pool := x509.NewCertPool()
	pool.AddCert(a.Certificate)
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool,
		Certificates: []tls.Certificate{{Certificate: [][]byte{svid.Certificates[0].Raw}, PrivateKey: svid.PrivateKey}},
	}
	run(t, server, l, grpc.Creds(credentials.NewTLS(config)))
	return l.Addr().String()
}

func TestAdministratorsOverTCP(t *testing.T) {
	a := certkit.NewRoot(t, own, elliptic.P256())
	bundle := x509bundle.FromX509Authorities(own, []*x509.Certificate{a.Certificate})
	admin := spiffeid.RequireFromString("spiffe://own.test/ops")
	server := spiretest.New(own)
	address := serveTCP(t, server, a, spire.ServerID(own))
	client := connect(t, serverapi.ClientConfig{Address: address, Credentials: serverapi.AdminCredentials(a.SVID(t, admin), bundle, own)})

	if _, err := client.Observe(t.Context(), edge, nil); !errors.Is(err, spire.ErrDenied) || !strings.Contains(err.Error(), "authorization denied for method") {
		t.Errorf("without rights: %v", err)
	}
	if _, err := client.Bundle(t.Context()); err != nil {
		t.Errorf("what everybody may: %v", err)
	}
	server.SetAdmins(admin)
	if _, err := reconcile(t, client, edge, spiretest.Entries(t, spiretest.Registration(nil))); err != nil {
		t.Errorf("by admin_ids: %v", err)
	}
	server.SetAdmins()
	foreign(t, server, func(e *types.Entry) { e.SpiffeId.Path, e.Admin = "/ops", true })
	if _, err := reconcile(t, client, edge, nil); err != nil {
		t.Errorf("by an entry: %v", err)
	}
}

func TestOnlyTheSpireServerIsSpokenTo(t *testing.T) {
	a, forger := certkit.NewRoot(t, own, elliptic.P256()), certkit.NewRoot(t, own, elliptic.P256())
	bundle := x509bundle.FromX509Authorities(own, []*x509.Certificate{a.Certificate})
	admin := a.SVID(t, spiffeid.RequireFromString("spiffe://own.test/ops"))
	for title, address := range map[string]string{
		"a workload of the trust domain": serveTCP(t, spiretest.New(own), a, spiffeid.RequireFromString("spiffe://own.test/workload")),
		"an agent":                       serveTCP(t, spiretest.New(own), a, node),
		"another authority":              serveTCP(t, spiretest.New(own), forger, spire.ServerID(own)),
	} {
		client := connect(t, serverapi.ClientConfig{Address: address, Credentials: serverapi.AdminCredentials(admin, bundle, own)})
		if _, err := client.Bundle(t.Context()); !errors.Is(err, spire.ErrUnavailable) || !strings.Contains(err.Error(), "authentication handshake failed") {
			t.Errorf("%s: %v", title, err)
		}
	}
}
