package workload

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"google.golang.org/grpc/credentials"

	"github.com/argomesh/argomesh/identity"
)

// Gateway says who may end the TLS of our calls before the one they are for. One of
// Authorize and ServerName is required.
type Gateway struct {
	// Authorize accepts a gateway by the SPIFFE ID of its X.509-SVID.
	Authorize identity.Authorizer
	// ServerName accepts a gateway by a host name, which is in a certificate of Roots.
	ServerName string
	// Roots returns the roots for ServerName, at each handshake. Nil means those of
	// the system.
	Roots func() (*x509.CertPool, error)
	// Present shows our own SVID to the gateway when it asks. Else it gets none.
	Present bool
}

// GatewayCredentials returns credentials for a gRPC client whose TLS terminates in a
// gateway. They say nothing of who is behind it.
func (s *Source) GatewayCredentials(g Gateway) (credentials.TransportCredentials, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	switch {
	case (g.Authorize == nil) == (g.ServerName == ""):
		return nil, errors.New("workload: a gateway is accepted by SPIFFE ID or by server name")
	case g.Authorize != nil:
		// As in ClientCredentials: verifyPeer checks the SVID instead of a host name.
		config.InsecureSkipVerify = true
		config.VerifyConnection = func(state tls.ConnectionState) error { return s.verifyPeer(state, g.Authorize) }
	default:
		config.MinVersion = tls.VersionTLS12 // load balancers that know no better exist
		config.ServerName = g.ServerName
		if g.Roots != nil {
			// This turns off the roots of the system; verifyName checks against Roots.
			config.InsecureSkipVerify = true
			config.VerifyConnection = func(state tls.ConnectionState) error { return verifyName(state, g) }
		}
	}
	if g.Present {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return s.certificate() }
	}
	return credentials.NewTLS(config), nil
}

// verifyName checks the certificates of a gateway for its name, in the way of
// crypto/tls.
func verifyName(state tls.ConnectionState, g Gateway) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("gateway presented no certificate")
	}
	roots, err := g.Roots()
	if err != nil {
		return fmt.Errorf("roots for gateway %s: %w", g.ServerName, err)
	}
	options := x509.VerifyOptions{Roots: roots, DNSName: g.ServerName, Intermediates: x509.NewCertPool()}
	for _, c := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := state.PeerCertificates[0].Verify(options); err != nil {
		return fmt.Errorf("gateway %s: %w", g.ServerName, err)
	}
	return nil
}
