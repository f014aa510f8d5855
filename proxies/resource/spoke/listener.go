package spoke

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/argomesh/argomesh/proxies/resource/exchange"
)

// singleConnListener is a listener that accepts one connection. Accept fails once that has ended.
type singleConnListener struct {
	ctx      context.Context //nolint:containedctx // of the connection's calls, by http.Server.BaseContext
	conn     net.Conn
	accepted bool // Accept is called by one goroutine

	once    sync.Once
	ended   chan struct{}
	err     error // of closing the connection; set before ended is closed
	lossErr error // why the connection was left open for the caller; as above
}

// Accept implements net.Listener.
func (l *singleConnListener) Accept() (net.Conn, error) {
	if !l.accepted {
		l.accepted = true
		return &servedConn{Conn: l.conn, listener: l}, nil
	}
	<-l.ended
	return nil, net.ErrClosed
}

// Close implements net.Listener. The server calls it when Accept has failed.
func (l *singleConnListener) Close() error { return l.end() }

// Addr implements net.Listener.
func (l *singleConnListener) Addr() net.Addr { return l.conn.LocalAddr() }

func (l *singleConnListener) end() error {
	l.once.Do(func() {
		l.err = l.conn.Close()
		close(l.ended)
	})
	return l.err
}

// leaveOpen leaves the connection to the caller of Serve.
func (l *singleConnListener) leaveOpen() error {
	l.once.Do(func() {
		l.lossErr = errServerLost
		l.err = l.conn.SetDeadline(time.Unix(1, 0)) // anyone who still reads is done
		close(l.ended)
	})
	return l.err
}

// servedConn ends its listener when it is closed, by the server or by who took it
// over for an upgrade.
type servedConn struct {
	net.Conn
	listener *singleConnListener
}

// Close ends the connection.
func (c *servedConn) Close() error { return c.listener.end() }

// Abort ends it so that the hub sees that it was lost.
func (c *servedConn) Abort() error { return c.listener.leaveOpen() }

// CloseWrite ends our direction alone.
func (c *servedConn) CloseWrite() error { return exchange.CloseWrite(c.Conn) }
