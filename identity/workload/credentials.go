package workload

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/argomesh/argomesh/identity"
)

// ServerCredentials returns credentials for a gRPC server: mutual TLS 1.3 that
// presents our SVID of the moment and asks for an SVID of any trust domain whose
// bundle we hold. They do not decide whether that peer is welcome; the handler
// asks [PeerFromContext] and then the registry. Each failed handshake is counted
// by its reason and, within limits that a flood cannot pass, logged once to log
// with reason and remote address; the other end learns only that TLS failed.
func (s *Source) ServerCredentials(log zerolog.Logger) credentials.TransportCredentials {
	config := &tls.Config{
		MinVersion: tls.VersionTLS13,
		// "Request", so that the lack of a certificate is our own error, with a
		// reason; verifyPeer refuses it in every case.
		ClientAuth:       tls.RequestClientCert,
		GetCertificate:   func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.certificate() },
		VerifyConnection: func(state tls.ConnectionState) error { return s.verifyPeer(state, anyPeer) },
		// A resumed session would bring the certificate of an earlier handshake;
		// each connection shall prove what its peer holds now.
		SessionTicketsDisabled: true,
	}
	return &spiffeCredentials{
		TransportCredentials: credentials.NewTLS(config),
		failed:               newFailureLog(log, s.metrics.handshakeFailures).record,
	}
}

// errSecondMethod refuses a client certificate where tokens count.
var errSecondMethod = &peerError{
	reason: reasonSecondMethod,
	err:    errors.New("peer presented a certificate to a listener of method " + identity.MethodJWT),
}

// TokenServerCredentials returns credentials for a gRPC server whose callers prove
// themselves by JWT-SVIDs: TLS that presents our SVID of the moment. A client that
// presents a certificate is refused, since one method counts; [Source.PeerFromToken]
// checks the rest. Failed handshakes are treated as in [Source.ServerCredentials].
func (s *Source) TokenServerCredentials(log zerolog.Logger) credentials.TransportCredentials {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, // of load balancers to what is behind them
		// "Request", so that one who has a certificate shows it and is refused.
		ClientAuth:     tls.RequestClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.certificate() },
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) > 0 {
				return errSecondMethod
			}
			return nil
		},
		SessionTicketsDisabled: true,
	}
	return &reportingCredentials{
		TransportCredentials: credentials.NewTLS(config),
		failed:               newFailureLog(log, s.metrics.handshakeFailures).record,
	}
}

// ClientCredentials returns credentials for a gRPC client: mutual TLS 1.3 that
// presents our SVID of the moment, and accepts a server whose SVID is valid and
// whose SPIFFE ID authorize accepts. Host names play no part. The error of a
// refused handshake is that of authorize, or says what is wrong with the SVID.
func (s *Source) ClientCredentials(authorize identity.Authorizer) credentials.TransportCredentials {
	config := &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return s.certificate()
		},
		// This turns off only the check of a host name and of public roots;
		// verifyPeer checks the SVID instead, on every connection.
		InsecureSkipVerify: true,
		VerifyConnection:   func(state tls.ConnectionState) error { return s.verifyPeer(state, authorize) },
	}
	return &spiffeCredentials{
		TransportCredentials: credentials.NewTLS(config),
		failed:               func(net.Conn, error) {}, // gRPC returns it to the caller
	}
}

// PeerFromContext returns who is at the other end of the connection that carries
// the call of ctx, in a handler of a server with [Source.ServerCredentials]. The
// error wraps [identity.ErrUnauthenticated] on every other connection, and for a call
// that carries another method's credential too.
func PeerFromContext(ctx context.Context) (identity.Peer, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return identity.Peer{}, fmt.Errorf("no peer in the call: %w", identity.ErrUnauthenticated)
	}
	info, ok := p.AuthInfo.(authInfo)
	if !ok {
		return identity.Peer{}, fmt.Errorf("connection carries no X.509-SVID: %w", identity.ErrUnauthenticated)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	for _, key := range []string{authorizationKey, forwardedKey} {
		if len(md.Get(key)) > 0 {
			return identity.Peer{}, fmt.Errorf("call of %s also carries %s, and one method counts: %w", info.peer.ID, key,
				identity.ErrUnauthenticated)
		}
	}
	return info.peer, nil
}

func anyPeer(spiffeid.ID) error { return nil }

// certificate returns our SVID as TLS wants it.
func (s *Source) certificate() (*tls.Certificate, error) {
	svid, err := s.GetX509SVID()
	if err != nil {
		return nil, err
	}
	cert := &tls.Certificate{PrivateKey: svid.PrivateKey, Leaf: svid.Certificates[0]}
	for _, c := range svid.Certificates {
		cert.Certificate = append(cert.Certificate, c.Raw)
	}
	return cert, nil
}

// verifyPeer checks the certificates of the other end as an X.509-SVID (SPIFFE
// X.509-SVID, section 5), and its owner by authorize. Who has no identity of its
// own trusts no one.
func (s *Source) verifyPeer(state tls.ConnectionState, authorize identity.Authorizer) error {
	if err := s.Ready(); err != nil {
		return err
	}
	if len(state.PeerCertificates) == 0 {
		return &peerError{reason: reasonNoCertificate, err: errors.New("peer presented no certificate")}
	}
	leaf := state.PeerCertificates[0]
	id, err := leafID(leaf)
	if err != nil {
		return &peerError{reason: reasonBadSVID, err: err}
	}
	if _, _, err := x509svid.Verify(state.PeerCertificates, s); err != nil {
		return &peerError{reason: verifyReason(err), id: id, err: err}
	}
	if err := authorize(id); err != nil {
		return &peerError{reason: reasonDenied, id: id, err: err}
	}
	return nil
}

// leafID returns the SPIFFE ID of a certificate that has the form of an SVID of
// a workload. Whether to believe it is another matter.
func leafID(leaf *x509.Certificate) (spiffeid.ID, error) {
	id, err := x509svid.IDFromCert(leaf)
	if err != nil {
		return spiffeid.ID{}, err
	}
	if err := identity.CheckID(id); err != nil {
		return spiffeid.ID{}, err
	}
	switch {
	case leaf.IsCA:
		return spiffeid.ID{}, fmt.Errorf("certificate of %s is a signing certificate", id)
	case leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0:
		return spiffeid.ID{}, fmt.Errorf("certificate of %s may not make digital signatures", id)
	case leaf.KeyUsage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0:
		return spiffeid.ID{}, fmt.Errorf("certificate of %s may sign others", id)
	}
	usages := leaf.ExtKeyUsage
	if len(usages)+len(leaf.UnknownExtKeyUsage) > 0 && !slices.Contains(usages, x509.ExtKeyUsageAny) &&
		!(slices.Contains(usages, x509.ExtKeyUsageClientAuth) && slices.Contains(usages, x509.ExtKeyUsageServerAuth)) {
		return spiffeid.ID{}, fmt.Errorf("certificate of %s is not for both client and server authentication", id)
	}
	return id, nil
}

// reportingCredentials adds to TLS credentials a place to report incoming
// handshakes that failed.
type reportingCredentials struct {
	credentials.TransportCredentials
	failed func(net.Conn, error)
}

// ServerHandshake implements credentials.TransportCredentials.
func (c *reportingCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		c.failed(raw, err)
	}
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (c *reportingCredentials) Clone() credentials.TransportCredentials {
	return &reportingCredentials{TransportCredentials: c.TransportCredentials.Clone(), failed: c.failed}
}

// spiffeCredentials adds to TLS credentials the proven peer, and a place to
// report incoming handshakes that failed.
type spiffeCredentials struct {
	credentials.TransportCredentials
	failed func(net.Conn, error)
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *spiffeCredentials) ClientHandshake(ctx context.Context, authority string,
	raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	return withPeer(conn, info, err)
}

// ServerHandshake implements credentials.TransportCredentials.
func (c *spiffeCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	conn, info, err = withPeer(conn, info, err)
	if err != nil {
		c.failed(raw, err)
	}
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (c *spiffeCredentials) Clone() credentials.TransportCredentials {
	return &spiffeCredentials{TransportCredentials: c.TransportCredentials.Clone(), failed: c.failed}
}

// withPeer notes who was verified in a handshake.
func withPeer(conn net.Conn, info credentials.AuthInfo, err error) (net.Conn, credentials.AuthInfo, error) {
	if err != nil {
		return nil, nil, err
	}
	tlsInfo, ok := info.(credentials.TLSInfo)
	if !ok || len(tlsInfo.State.PeerCertificates) == 0 {
		return nil, nil, errors.Join(errors.New("tls gave no peer certificate"), conn.Close())
	}
	leaf := tlsInfo.State.PeerCertificates[0]
	id, err := leafID(leaf)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, authInfo{TLSInfo: tlsInfo,
		peer: identity.Peer{ID: id, NotAfter: leaf.NotAfter, Method: identity.MethodX509}}, nil
}
