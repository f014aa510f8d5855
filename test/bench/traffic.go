//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// traffic counts what connections carry, one after the other. Its methods may be
// called concurrently.
type traffic struct {
	mu          sync.Mutex // guards what follows
	connections int
	begun       time.Time // of the newest connection
	bytes       int64     // both ways, since begun
	moved       time.Time // when a byte last passed
	changed     chan struct{}
}

func newTraffic() *traffic { return &traffic{changed: make(chan struct{})} }

// count returns how many connections there were so far.
func (t *traffic) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.connections
}

// begin starts the count of another connection.
func (t *traffic) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.connections++
	t.begun, t.bytes = time.Now(), 0
	t.touch()
}

func (t *traffic) add(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes += int64(n)
	t.touch()
}

// touch is called with mu locked.
func (t *traffic) touch() {
	t.moved = time.Now()
	close(t.changed)
	t.changed = make(chan struct{})
}

// passed is what one connection carried.
type passed struct {
	begun time.Time
	took  time.Duration // until its last byte so far
	bytes int64
}

// settled waits until a connection after the first n has begun and carried nothing
// for quiet.
func (t *traffic) settled(ctx context.Context, n int, quiet time.Duration) (passed, error) {
	for {
		t.mu.Lock()
		connections, changed, p, rests := t.connections, t.changed, passed{t.begun, t.moved.Sub(t.begun), t.bytes}, time.Since(t.moved)
		t.mu.Unlock()
		rest := time.NewTimer(time.Hour)
		if connections > n && p.bytes > 0 {
			if rests >= quiet {
				rest.Stop()
				return p, nil
			}
			rest.Reset(quiet - rests)
		}
		select {
		case <-changed:
		case <-rest.C:
		case <-ctx.Done():
			rest.Stop()
			return passed{}, fmt.Errorf("wait for a new connection to settle: %w", ctx.Err())
		}
		rest.Stop()
	}
}

// countingCredentials count the bytes of a gRPC client's connections above TLS:
// HTTP/2 and gRPC framing included, TLS and TCP not.
type countingCredentials struct {
	credentials.TransportCredentials
	traffic *traffic
}

// ClientHandshake implements credentials.TransportCredentials.
func (c countingCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c.traffic.begin()
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return countingConn{Conn: conn, traffic: c.traffic}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c countingCredentials) Clone() credentials.TransportCredentials {
	return countingCredentials{TransportCredentials: c.TransportCredentials.Clone(), traffic: c.traffic}
}

type countingConn struct {
	net.Conn
	traffic *traffic
}

// Read implements net.Conn.
func (c countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.traffic.add(n)
	return n, err
}

// Write implements net.Conn.
func (c countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.traffic.add(n)
	return n, err
}
