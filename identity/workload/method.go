package workload

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/argomesh/argomesh/identity"
)

// Method is how an agent and its principal prove themselves to each other.
type Method struct {
	// Name is identity.MethodX509, MethodJWT or MethodHeader.
	Name string
	// Principal are the SPIFFE IDs that the principal may have.
	Principal []spiffeid.ID
	// With MethodJWT and MethodHeader TLS terminates before the principal: at a gateway with one of
	// GatewayIDs, at one with the host name GatewayName, or, with Plaintext, at a proxy beside
	// us to which we speak without TLS. With none of the three the gateway has an ID of
	// Principal.
	GatewayIDs  []spiffeid.ID
	GatewayName string
	Plaintext   bool
	// GatewayRoots returns the roots for GatewayName, at each handshake. Nil means those of
	// the system.
	GatewayRoots func() (*x509.CertPool, error)
	// Allow returns what accepts those who have one of some IDs. Nil means
	// identity.AllowIDs.
	Allow func(ids ...spiffeid.ID) identity.Authorizer
}

// Presents reports whether anyone who terminates TLS is shown our X.509-SVID.
func (m Method) Presents() bool { return m.Name != identity.MethodJWT && !m.Plaintext }

// Credentials returns those for a gRPC client of the principal with the SVIDs of s.
func (m Method) Credentials(s *Source) (credentials.TransportCredentials, error) {
	allow := m.Allow
	if allow == nil {
		allow = identity.AllowIDs
	}
	switch {
	case m.Name == identity.MethodX509:
		return s.ClientCredentials(allow(m.Principal...)), nil
	case m.Plaintext:
		return insecure.NewCredentials(), nil
	}
	g := Gateway{ServerName: m.GatewayName, Roots: m.GatewayRoots, Present: m.Presents()}
	switch {
	case m.GatewayName != "":
	case len(m.GatewayIDs) > 0:
		g.Authorize = allow(m.GatewayIDs...)
	default:
		g.Authorize = allow(m.Principal...)
	}
	return s.GatewayCredentials(g)
}

// Token returns what gives a JWT-SVID of s for the principal, with the time at which to ask
// for another. It is nil when none is sent.
func (m Method) Token(s *Source) func(context.Context) (token string, renewAt time.Time, err error) {
	if m.Name != identity.MethodJWT {
		return nil
	}
	audiences := make([]string, len(m.Principal))
	for i, id := range m.Principal {
		audiences[i] = id.String()
	}
	source := s.Token(audiences...)
	return func(ctx context.Context) (string, time.Time, error) {
		svid, renewAt, err := source.Get(ctx)
		if err != nil {
			return "", time.Time{}, err
		}
		return svid.Marshal(), renewAt, nil
	}
}

// ReadRoots reads a file of certificates in PEM.
func ReadRoots(file string) (*x509.CertPool, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("%s has no certificate in PEM", file)
	}
	return roots, nil
}
