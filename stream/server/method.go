package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
)

// Method is one way in which callers prove who they are. A listener has one method,
// and a call by another is refused. Its functions may be called concurrently.
type Method struct {
	// Name is one of identity's Method constants, for the log. Required.
	Name string
	// Credentials are those of the listener's connections. Required.
	Credentials credentials.TransportCredentials
	// Authenticate says who the caller of ctx is, and until when that is proven. It
	// refuses a call that carries two credentials. Errors wrap
	// identity.ErrUnauthenticated. Required.
	Authenticate func(ctx context.Context) (identity.Peer, error)
	// Renew says who proves himself by a token on an open connection. Errors wrap
	// identity.ErrUnauthenticated. Nil means that connections are not renewed: the
	// frame is a violation.
	Renew func(token string) (identity.Peer, error)
	// Prove returns a token by which this process proves itself to a peer that TLS has
	// not shown it to, bound to the peer's nonce, and good for a minute at least. It is
	// asked ten times a second for one agent at most. Nil means that TLS has.
	Prove func(ctx context.Context, to spiffeid.ID, nonce stream.Nonce) (string, error)
	// ProveAgain says that the peer does not know when its proof ends, so it is told
	// to come again by a new connection, when half of that time is over.
	ProveAgain bool
}

// On returns l as a listener whose calls are authenticated by m.
func (m Method) On(l net.Listener) (net.Listener, error) {
	if m.Name == "" || m.Credentials == nil || m.Authenticate == nil {
		return nil, errors.New("stream server: a method has a name and credentials, and authenticates")
	}
	return &methodListener{Listener: l, method: &m}, nil
}

type methodListener struct {
	net.Listener
	method *Method
}

// Accept implements net.Listener.
func (l *methodListener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &methodConn{Conn: raw, method: l.method}, nil
}

// methodConn is a connection of a listener with a method of its own.
type methodConn struct {
	net.Conn
	method *Method
}

// method returns the method by which the call of ctx is authenticated.
func (s *Server) method(ctx context.Context) *Method {
	if c := connectionOf(ctx); c != nil && c.method != nil {
		return c.method
	}
	return &s.fallback
}

// connectionOf returns the connection that carries the call of ctx; nil when it is none
// of this server's.
func connectionOf(ctx context.Context) *connection {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	at, _ := p.LocalAddr.(connectionAddr)
	return at.connection
}

// byMethod hands each handshake to the credentials of its listener's method.
type byMethod struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (c byMethod) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if at, ok := raw.LocalAddr().(connectionAddr); ok && at.connection.method != nil {
		return at.connection.method.Credentials.ServerHandshake(raw)
	}
	return c.TransportCredentials.ServerHandshake(raw)
}

// Clone implements credentials.TransportCredentials.
func (c byMethod) Clone() credentials.TransportCredentials {
	return byMethod{c.TransportCredentials.Clone()}
}

// prove returns what the agent is to know of this process, as far as TLS does not
// show it.
func (s *Server) prove(ctx context.Context, to call.Caller, nonce stream.Nonce) (proof call.Proof, err error) {
	m := s.method(ctx)
	if m.ProveAgain {
		proof.ProveAgain = min(max(time.Until(to.Peer.NotAfter)/2, time.Second), stream.MaxProveAgain)
	}
	if m.Prove == nil || nonce == "" {
		return proof, nil // an agent that asks for no proof sees that there is none
	}
	proof.Nonce = nonce
	proof.Token, err = s.signatures.token(ctx, m.Prove, to, nonce)
	return proof, err
}

// renewal takes the credentials of an open connection.
type renewal struct {
	method *Method
	peer   identity.Peer // the newest proof of who opened the connection
	total  *prometheus.CounterVec
	// proven is told of each newer one.
	proven func(identity.Peer)
}

// renew is called by one goroutine at a time. An error ends the connection: it wraps
// identity.ErrUnauthenticated, or a stream.Violation where nothing is renewed.
func (r *renewal) renew(c stream.Credential) error {
	if r.method.Renew == nil {
		return fmt.Errorf("credential on a connection of another method: %w", stream.ViolationOrder.Err())
	}
	p, err := r.method.Renew(c.Token)
	if err != nil {
		r.total.WithLabelValues("refused").Inc()
		return err
	}
	if p.ID != r.peer.ID {
		r.total.WithLabelValues("refused").Inc()
		return fmt.Errorf("credential of %s on a connection of %s: %w", p.ID, r.peer.ID, identity.ErrUnauthenticated)
	}
	if !p.NotAfter.After(r.peer.NotAfter) {
		return nil // no news
	}
	r.total.WithLabelValues("accepted").Inc()
	r.peer = p
	r.proven(p)
	return nil
}
