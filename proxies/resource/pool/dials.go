package pool

import (
	"context"
	"net"
	"sync"
)

// MaxDials is how many connections to the API server are made at a time. A TLS handshake
// costs it more than most calls do, before it knows whom to put off, and one that was begun
// goes on when its call is given up.
const MaxDials = 32

// dialFunc makes a connection.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Dials has a value for each connection that is being made, up to its capacity.
type Dials chan struct{}

// bounded makes at most as many connections at a time as there is room; others wait. One is
// made once the other side has said something, which in TLS is its answer to our hello.
func (room Dials) bounded(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		established := sync.OnceFunc(func() { <-room })
		conn, err := dial(ctx, network, address)
		if err != nil {
			established()
			return nil, err
		}
		return &newConn{Conn: conn, established: established}, nil
	}
}

// newConn is a connection that counts until it is established.
type newConn struct {
	net.Conn
	established func()
}

func (c *newConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.established()
	return n, err
}

// Close ends the connection.
func (c *newConn) Close() error {
	defer c.established()
	return c.Conn.Close()
}
