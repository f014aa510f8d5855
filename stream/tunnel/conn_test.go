package tunnel_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/tunnel"
)

// pairs is a Handler that hands its connections out and holds them until they are
// closed.
type pairs chan net.Conn

func (p pairs) handle(ctx context.Context, conn net.Conn) error {
	select {
	case p <- conn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	<-ctx.Done()
	return nil
}

// pair returns the two ends of a connection.
func (p pairs) pair(t testing.TB, h *hub) (hubEnd, spokeEnd halfConn) {
	t.Helper()
	got := make(chan halfConn, 1)
	go func() {
		c := <-p
		_, _ = c.Read(nil) // which accepts it
		got <- c.(halfConn)
	}()
	hubEnd = h.dial("edge-1", stream.Kubernetes)
	return hubEnd, <-got
}

// A connection is a net.Conn as the standard library understands it, seen from
// either end, over TLS and gRPC.
func TestConn(t *testing.T) {
	leavesNothing(t)
	h := newHub(t, nil, nil)
	conns := make(pairs)
	h.spoke("edge-1", only(stream.Kubernetes, conns.handle), nil)
	for end, turn := range map[string]bool{"from the hub": false, "from the spoke": true} {
		t.Run(end, func(t *testing.T) {
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				c1, c2 = conns.pair(t, h)
				if turn {
					c1, c2 = c2, c1
				}
				return c1, c2, func() { _, _ = c1.Close(), c2.Close() }, nil
			})
		})
	}
}

// Each direction ends by itself, and what was written before arrives before.
func TestHalfClose(t *testing.T) {
	leavesNothing(t)
	h := newHub(t, nil, nil)
	conns := make(pairs)
	h.spoke("edge-1", only(stream.Kubernetes, conns.handle), nil)
	for first, turn := range map[string]bool{"the hub ends first": false, "the spoke ends first": true} {
		t.Run(first, func(t *testing.T) {
			a, b := conns.pair(t, h)
			if turn {
				a, b = b, a
			}
			const question, answer = 700 << 10, 300 << 10 // more than the window
			sum := func(to halfConn, n int) []byte {
				data := make([]byte, n)
				for i := range data {
					data[i] = byte(rand.Uint32())
				}
				s := sha256.Sum256(data)
				go func() {
					if _, err := to.Write(data); err != nil {
						t.Errorf("Write() = %v", err)
					}
					if err := to.CloseWrite(); err != nil {
						t.Errorf("CloseWrite() = %v", err)
					}
				}()
				return s[:]
			}
			for _, way := range []struct {
				from, to halfConn
				bytes    int
			}{{a, b, question}, {b, a, answer}} {
				want := sum(way.from, way.bytes)
				hash := sha256.New()
				n, err := io.Copy(hash, way.to)
				if err != nil || n != int64(way.bytes) || !bytes.Equal(hash.Sum(nil), want) {
					t.Errorf("read %d bytes, %v, want %d as they were written", n, err, way.bytes)
				}
			}
			if _, err := a.Write([]byte("x")); err == nil {
				t.Error("Write() after CloseWrite() succeeds")
			}
			if err := errors.Join(a.Close(), b.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Close does not lose what was written before, and tells a peer that writes on.
func TestClose(t *testing.T) {
	leavesNothing(t)
	h := newHub(t, nil, nil)
	conns := make(pairs)
	h.spoke("edge-1", only(stream.Kubernetes, conns.handle), nil)
	for who, turn := range map[string]bool{"the hub": false, "the spoke": true} {
		t.Run(who, func(t *testing.T) {
			a, b := conns.pair(t, h)
			if turn {
				a, b = b, a
			}
			last := bytes.Repeat([]byte("goodbye "), 4000)
			if _, err := a.Write(last); err != nil {
				t.Fatal(err)
			}
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Read() after Close() = %v, want %v", err, net.ErrClosed)
			}
			if _, err := a.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Write() after Close() = %v, want %v", err, net.ErrClosed)
			}
			if err := a.Close(); err != nil {
				t.Errorf("Close() again = %v", err)
			}
			got, err := io.ReadAll(b)
			if err != nil || !bytes.Equal(got, last) {
				t.Errorf("read %d bytes, %v, want all %d", len(got), err, len(last))
			}
			if _, err := b.Write([]byte("x")); err == nil {
				t.Error("Write() to a closed peer succeeds")
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A reader that stands still keeps no one of the same TCP connection waiting, in
// either direction, and holds no more than the window.
func TestStalledReaderStopsNobodyElse(t *testing.T) {
	leavesNothing(t)
	h := newHub(t, nil, nil)
	conns := make(pairs)
	s := h.spoke("edge-1", map[stream.Service]tunnel.Handler{stream.Kubernetes: conns.handle, stream.Redis: echo}, nil)
	const stalled = 20 // together many times what HTTP/2 lets a connection hold
	for i := range stalled {
		for _, end := range func() [2]halfConn { a, b := conns.pair(t, h); return [2]halfConn{a, b} }() {
			if err := end.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			n, err := end.Write(make([]byte, 1<<20))
			if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
				t.Fatalf("Write() to a reader that stands still = %d, %v", n, err)
			}
			if n > 256<<10 {
				t.Fatalf("%d bytes left for a reader that stands still", n)
			}
			_ = i
		}
	}
	c := h.dial("edge-1", stream.Redis)
	for i := range 100 {
		exchange(t, c, fmt.Sprintf("message %d", i))
	}
	if got := metric(t, s.metrics, "argomesh_tunnel_carriers"); got != 1 {
		t.Errorf("%v TCP connections, want the same for all", got)
	}
}
