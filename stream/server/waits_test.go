package server_test

import (
	"context"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/quota"
	"github.com/argomesh/argomesh/stream/server"
	"github.com/argomesh/argomesh/test/kit"
)

// A connection tells that what its agent sent waits for memory that another holds, as long as
// it does.
func TestConnectionTellsThatItWaits(t *testing.T) {
	room, err := quota.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	conns := make(chan *server.Conn, 1)
	h := newHub(t, func(c *server.Config) {
		c.Quota = room
		serve := c.Serve
		c.Serve = func(ctx context.Context, s server.Session, conn *server.Conn) error {
			conns <- conn
			return serve(ctx, s, conn)
		}
	})
	var release []func()
	for _, name := range []string{"bad-1", "bad-2", "bad-3"} {
		of, err := identity.ParseAgentName(name)
		if err != nil {
			t.Fatal(err)
		}
		free, err := room.Acquire(t.Context(), of, quota.Decoding, quota.PeerDecoding)
		if err != nil {
			t.Fatal(err)
		}
		release = append(release, free)
	}
	call := h.as(edge1ID).connect("edge-1")
	conn := <-conns
	if conn.Waits() {
		t.Error("a connection on which nothing came waits")
	}
	long := stream.FrameOf(stream.Heartbeat{})
	// A field of a later release, of 64 KiB.
	long.ProtoReflect().SetUnknown(append([]byte{0xfa, 0x3f, 0x80, 0x80, 0x04}, strings.Repeat("x", 64<<10)...))
	if err := call.Send(long); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, "it does not say that it waits", conn.Waits)
	release[0]()
	kit.Eventually(t, "it waits though there is room", func() bool { return !conn.Waits() })
}
