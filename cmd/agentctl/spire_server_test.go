package main

import (
	"context"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"testing"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/mesh/spire/spiretest"
	"github.com/argomesh/argomesh/test/kit"
	"github.com/argomesh/argomesh/test/kit/certkit"
)

// startSPIREOverTCP runs the SPIRE server of hub.test on TCP, for administrators of
// clients. It returns its address and the bundle of its trust domain.
func startSPIREOverTCP(t *testing.T, clients *spiffebundle.Bundle, admins ...spiffeid.ID) (string, *spiffebundle.Bundle) {
	t.Helper()
	root := certkit.NewRoot(t, hubTD, elliptic.P256())
	svid := root.SVID(t, spire.ServerID(hubTD))
	pool := x509.NewCertPool()
	for _, authority := range clients.X509Authorities() {
		pool.AddCert(authority)
	}
	server := spiretest.New(hubTD)
	server.SetAdmins(admins...)
	l := listen(t)
	creds := credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool,
		Certificates: []tls.Certificate{{Certificate: [][]byte{svid.Certificates[0].Raw}, PrivateKey: svid.PrivateKey}},
	})
	kit.Background(t, func(ctx context.Context) error { return server.Run(ctx, l, grpc.Creds(creds)) })
	bundle := spiffebundle.New(hubTD)
	bundle.AddX509Authority(root.Certificate)
	return l.Addr().String(), bundle
}

// An administrator of a federated trust domain, as admin_ids allows.
func TestAdministratorOverTCP(t *testing.T) {
	admin, other := spiffeid.RequireFromString("spiffe://edge.test/ops"), spiffeid.RequireFromString("spiffe://edge.test/other")
	api, socket := workloadAPIOf(t, edgeTD, devworkload.Entry{ID: other}, devworkload.Entry{ID: admin})
	address, bundle := startSPIREOverTCP(t, api.Bundle(), admin)
	const register = "identity register principal --spiffe-id spiffe://hub.test/argomesh/principal --selector unix:uid:7 --parent-id spiffe://hub.test/n"
	flags := []string{"--spire-server", address, "--socket", socket}
	step{args: register, err: "the Workload API offers 2: choose one with --admin-id"}.run(t, flags...)
	step{args: register + " --admin-id spiffe://edge.test/x", err: "does not offer --admin-id spiffe://edge.test/x"}.run(t, flags...)
	step{args: register + " --admin-id " + admin.String(), err: "our Workload API has no bundle of hub.test to check that server with"}.run(t, flags...)
	if err := api.SetFederated(bundle); err != nil {
		t.Fatal(err)
	}
	step{args: register + " --admin-id " + other.String(), err: "be an administrator (an entry with admin, or admin_ids of the server)"}.run(t, flags...)
	step{args: register + " --admin-id " + admin.String(), out: "entry/argomesh.principal.395b965dd4b11858 created\n"}.run(t, flags...)
	// Without identities to tell whose it is, the server is that of our own trust domain.
	step{args: "identity list --admin-id " + admin.String(), err: "unexpected ID"}.run(t, flags...)
	step{
		args: "identity list --no-headers --spire-trust-domain hub.test --admin-id " + admin.String(), out: "principal   spiffe://hub.test/argomesh/principal   -\n",
	}.run(t, flags...)
	if err := api.SetEntries([]devworkload.Entry{{ID: admin}}); err != nil {
		t.Fatal(err)
	}
	step{args: register, out: "entry/argomesh.principal.395b965dd4b11858 unchanged\n"}.run(t, flags...)
}
