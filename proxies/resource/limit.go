package resource

import (
	"net"
	"sync"

	"github.com/argomesh/argomesh/proxies/resource/exchange"
)

// limitListener bounds the open connections; more wait to be accepted. Unlike that
// of golang.org/x/net/netutil its connections can be half closed.
type limitListener struct {
	net.Listener
	slots  chan struct{}
	once   sync.Once
	closed chan struct{}
}

func newLimitListener(l net.Listener, limit int) *limitListener {
	return &limitListener{Listener: l, slots: make(chan struct{}, limit), closed: make(chan struct{})}
}

// Accept waits for room, and then for a connection.
func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{Conn: conn, release: sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close ends the listener, also for an Accept that waits for room.
func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	release func()
}

// Close gives the slot back.
func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// CloseWrite ends our direction alone.
func (c *limitedConn) CloseWrite() error { return exchange.CloseWrite(c.Conn) }

// Abort closes the connection so that its peer sees a failure, where it can.
func (c *limitedConn) Abort() error {
	defer c.release()
	return exchange.Abort(c.Conn)
}
