package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/argomesh/argomesh/stream/call"
)

// Path is how far a connection to an address comes that has no identity, and what it meets there.
type Path struct {
	// Connected says that something accepted a TCP connection, through the proxy of the environment if
	// there is one.
	Connected bool
	// Certificate is what that showed of itself; nil if it came to no handshake of TLS.
	Certificate *x509.Certificate
	// HTTP2 says that the other end speaks HTTP/2 behind TLS (ALPN, RFC 7301).
	HTTP2 bool
	// Err is why there is no connection, or no handshake; nil if there is a Certificate.
	Err error
}

// Walk connects to an address, host:port, as an agent would, looks at whom it meets, and hangs up. It
// believes no one and says nothing, so that it needs no Workload API. It takes as long as ctx lets it.
func Walk(ctx context.Context, address string) Path {
	var met pathRecorder
	conn, err := grpc.NewClient(address, call.DialOptions(&met)...)
	if err != nil {
		return Path{Err: err}
	}
	defer func() { _ = conn.Close() }() // nothing is under way
	_, err = silentCall(ctx, conn)
	return met.result(err)
}

// pathRecorder is the TLS of a connection that ends once the other side has shown who it is. Its zero value
// has met no one.
type pathRecorder struct {
	mu   sync.Mutex // guards what follows
	path Path
}

var errSeen = errors.New("it was seen")

func (m *pathRecorder) result(err error) Path {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.path.Connected {
		m.path.Err = err
	}
	return m.path
}

// ClientHandshake notes whom it meets, and takes no one.
func (m *pathRecorder) ClientHandshake(ctx context.Context, authority string,
	raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	host, _, err := net.SplitHostPort(authority)
	if err != nil {
		host = authority
	}
	met := Path{Connected: true}
	client := tls.Client(raw, &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: host,
		// Both, so that who speaks only the older says so.
		NextProtos:         []string{"h2", "http/1.1"},
		InsecureSkipVerify: true, //nolint:gosec // whom it meets is what is asked, and nothing is said
		VerifyConnection: func(s tls.ConnectionState) error {
			met.Certificate, met.HTTP2 = s.PeerCertificates[0], s.NegotiatedProtocol == "h2"
			return nil
		},
	})
	// It may end in an error once the certificate was seen, since we show none.
	if err = client.HandshakeContext(ctx); met.Certificate == nil {
		met.Err = err
	}
	m.mu.Lock()
	if !m.path.Connected {
		m.path = met
	}
	m.mu.Unlock()
	return nil, nil, errSeen
}

// ServerHandshake is for servers.
func (*pathRecorder) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("it only dials")
}

// Info implements credentials.TransportCredentials.
func (*pathRecorder) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials. What the clone meets, m has met.
func (m *pathRecorder) Clone() credentials.TransportCredentials { return m }

// OverrideServerName implements credentials.TransportCredentials.
func (*pathRecorder) OverrideServerName(string) error { return nil }
