package server

import (
	"net"
	"sync"
)

// listener knows the connections it accepted, so that they can be cut, whatever
// they are in the middle of.
type listener struct {
	net.Listener
	mu   sync.Mutex // guards open
	open map[net.Conn]struct{}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: raw, listener: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = struct{}{}
	return c, nil
}

// cut closes all connections that are open.
func (l *listener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		go func() { _ = c.Close() }() // it comes back for mu; nothing is lost with the connection
	}
}

type connection struct {
	net.Conn
	listener *listener
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
