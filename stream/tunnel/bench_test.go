package tunnel_test

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/kit"
)

// transports are the tunnel and, for comparison, TCP on loopback, to a service that
// echoes and one that only talks.
func transports(b *testing.B, serve func(net.Conn)) map[string]func(testing.TB) net.Conn {
	b.Helper()
	h := newHub(b, nil, nil)
	h.spoke("edge-1", only(stream.Redis, func(_ context.Context, conn net.Conn) error { serve(conn); return nil }), nil)
	direct := tcpServer(b, func(c *net.TCPConn) { serve(c) })
	return map[string]func(testing.TB) net.Conn{
		"tunnel": func(tb testing.TB) net.Conn {
			c, err := h.dialer.Dial(kit.Context(tb), kit.Agent(tb, "edge-1"), stream.Redis)
			if err != nil {
				tb.Fatal(err)
			}
			return c
		},
		"tcp": func(tb testing.TB) net.Conn {
			c, err := net.Dial("tcp", direct.String())
			if err != nil {
				tb.Fatal(err)
			}
			return c
		},
	}
}

func copyBack(c net.Conn) { _, _ = io.Copy(struct{ io.Writer }{c}, c) }

// BenchmarkRoundTrip is one byte there and back on an open connection.
func BenchmarkRoundTrip(b *testing.B) {
	for transport, dial := range transports(b, copyBack) {
		b.Run(transport, func(b *testing.B) {
			c := dial(b)
			defer func() { _ = c.Close() }()
			one := []byte{1}
			for b.Loop() {
				if _, err := c.Write(one); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, one); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkThroughput is one direction of one connection, from the spoke.
func BenchmarkThroughput(b *testing.B) {
	piece := make([]byte, 32<<10)
	talk := func(c net.Conn) {
		for {
			if _, err := c.Write(piece); err != nil {
				return
			}
		}
	}
	for transport, dial := range transports(b, talk) {
		b.Run(transport, func(b *testing.B) {
			c := dial(b)
			defer func() { _ = c.Close() }()
			got := make([]byte, len(piece))
			b.SetBytes(int64(len(got)))
			for b.Loop() {
				if _, err := io.ReadFull(c, got); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDial is a connection that is made, used for one byte, and closed.
func BenchmarkDial(b *testing.B) {
	for transport, dial := range transports(b, copyBack) {
		b.Run(transport, func(b *testing.B) {
			one := []byte{1}
			for b.Loop() {
				c := dial(b)
				if _, err := c.Write(one); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, one); err != nil {
					b.Fatal(err)
				}
				_ = c.Close()
			}
		})
	}
}
