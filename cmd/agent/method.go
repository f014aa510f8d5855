package main

import (
	"crypto/x509"
	"fmt"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/argomesh/argomesh/cmd/internal/agentconfig"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
)

// authentication is how this agent and its principal prove themselves to each other,
// on every connection between them.
type authentication struct {
	call.Mutual
	credentials credentials.TransportCredentials
	proves      func() time.Time // nil: not by our SVID
}

// methodOf is the method that the configuration says.
func methodOf(p agentconfig.Principal) workload.Method {
	m := workload.Method{Name: p.Method, Principal: p.SPIFFEIDs, GatewayIDs: p.Gateway.SPIFFEIDs,
		GatewayName: p.Gateway.ServerName, Plaintext: p.Gateway.Plaintext}
	if file := p.Gateway.CAFile; file != "" {
		m.GatewayRoots = func() (*x509.CertPool, error) {
			roots, err := workload.ReadRoots(file)
			if err != nil {
				return nil, fmt.Errorf("principal.gateway.ca_file: %w", err)
			}
			return roots, nil
		}
	}
	return m
}

// authenticate returns how this agent proves itself to the principal p.
func authenticate(p agentconfig.Principal, source *workload.Source) (a authentication, err error) {
	method := methodOf(p)
	if a.credentials, err = method.Credentials(source); err != nil {
		return authentication{}, err
	}
	if method.Presents() { // else it is not our SVID that anyone who terminates TLS sees
		a.proves = svidExpiry(source)
	}
	if !p.NeedsProof() {
		return a, nil
	}
	principal := identity.AllowIDs(p.SPIFFEIDs...)
	a.Verify = func(proof string, nonce stream.Nonce) error {
		own, err := source.GetX509SVID()
		if err != nil {
			return err
		}
		peer, err := source.VerifyToken(proof, own.ID.String(), nonce.Audience())
		if err != nil {
			return err
		}
		return principal(peer.ID)
	}
	a.Token = method.Token(source)
	return a, nil
}

// svidExpiry is client.Config.Proves.
func svidExpiry(source *workload.Source) func() time.Time {
	return func() time.Time {
		svid, err := source.GetX509SVID()
		if err != nil {
			return time.Time{}
		}
		return svid.Certificates[0].NotAfter
	}
}
