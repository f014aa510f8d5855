package tunnel

import (
	"context"
	"net"
	"sync"
)

// Listener is a net.Listener whose connections come through a tunnel: Handle is a
// Handler, and Accept returns what it is given. With it an http.Server in this
// process serves the hub.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

// NewListener returns a listener that is open.
func NewListener() *Listener {
	closed := make(chan struct{})
	return &Listener{conns: make(chan net.Conn), closed: closed, close: sync.OnceFunc(func() { close(closed) })}
}

// Handle is a Handler. It waits until conn is accepted and closed.
func (l *Listener) Handle(ctx context.Context, conn net.Conn) error {
	a := &accepted{Conn: conn, closed: make(chan struct{})}
	a.close = sync.OnceFunc(func() { close(a.closed) })
	select {
	case l.conns <- a:
	case <-l.closed:
		return net.ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-a.closed:
		return nil
	case <-ctx.Done():
		return conn.Close() // its server meets that
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Connections that were accepted go on.
func (l *Listener) Close() error {
	l.close()
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return address("agent") }

// accepted is a connection whose end Handle waits for.
type accepted struct {
	net.Conn
	closed chan struct{}
	close  func()
}

// Close implements net.Conn.
func (a *accepted) Close() error {
	defer a.close()
	return a.Conn.Close()
}

// CloseWrite says that no more comes.
func (a *accepted) CloseWrite() error { return closeWrite(a.Conn) }
