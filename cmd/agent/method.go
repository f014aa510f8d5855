package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

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

// authenticate returns how this agent proves itself to the principal p.
func authenticate(p agentconfig.Principal, source *workload.Source) (authentication, error) {
	principal := identity.AllowIDs(p.SPIFFEIDs...)
	if p.Method == identity.MethodX509 {
		return authentication{credentials: source.ClientCredentials(principal), proves: svidExpiry(source)}, nil
	}
	var a authentication
	var err error
	if a.credentials, err = gatewayCredentials(p, source); err != nil {
		return authentication{}, err
	}
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
	switch {
	case p.Method == identity.MethodJWT:
		audiences := make([]string, 0, len(p.SPIFFEIDs))
		for _, id := range p.SPIFFEIDs {
			audiences = append(audiences, id.String())
		}
		token := source.Token(audiences...)
		a.Token = func(ctx context.Context) (string, time.Time, error) {
			svid, renewAt, err := token.Get(ctx)
			if err != nil {
				return "", time.Time{}, err
			}
			return svid.Marshal(), renewAt, nil
		}
	case !p.Gateway.Plaintext: // else it is not our SVID that the gateway sees
		a.proves = svidExpiry(source)
	}
	return a, nil
}

func gatewayCredentials(p agentconfig.Principal, source *workload.Source) (credentials.TransportCredentials, error) {
	if p.Gateway.Plaintext {
		return insecure.NewCredentials(), nil
	}
	gateway := workload.Gateway{ServerName: p.Gateway.ServerName, Present: p.Method == identity.MethodHeader}
	if p.Gateway.ServerName == "" {
		ids := p.Gateway.SPIFFEIDs
		if len(ids) == 0 {
			ids = p.SPIFFEIDs
		}
		gateway.Authorize = identity.AllowIDs(ids...)
	}
	if file := p.Gateway.CAFile; file != "" {
		gateway.Roots = func() (*x509.CertPool, error) { return readRoots(file) }
	}
	return source.GatewayCredentials(gateway)
}

func readRoots(file string) (*x509.CertPool, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("principal.gateway.ca_file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("principal.gateway.ca_file: %s has no certificate in PEM", file)
	}
	return roots, nil
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
