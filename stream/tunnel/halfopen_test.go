package tunnel_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/tunnel/acceptor"
	"github.com/argomesh/argomesh/test/kit"
)

// foundWithin is how long a connection to a peer that is lost may look alive.
const foundWithin = 30 * time.Second

// A way between the two that swallows everything and says nothing is found by both
// ends of a connection in use, and of spare streams; then the agent is not connected.
// It takes real time: TestSilenceEndsStreams shows the heartbeats alone in virtual
// time.
func TestHalfOpenConnectionsAreFound(t *testing.T) {
	t.Parallel() // it waits
	h := newHub(t, nil, nil)
	way := newHole(t, h.address)
	spokeEnd := make(chan error, 1)
	h.spoke("edge-1", only(stream.Redis, func(_ context.Context, conn net.Conn) error {
		_, err := io.Copy(conn, conn)
		spokeEnd <- err
		return err
	}), func(cfg *acceptor.Config) { cfg.Target = way.Addr().String() })
	c := h.dial("edge-1", stream.Redis)
	exchange(t, c, "hello")
	close(way.swallow)
	began := time.Now()
	hubEnd := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		hubEnd <- err
	}()
	dialed := make(chan error, 1)
	go func() {
		_, err := h.dialer.Dial(kit.Context(t), kit.Agent(t, "edge-1"), stream.Redis)
		dialed <- err
	}()
	late := time.After(foundWithin)
	for end, errs := range map[string]chan error{"the hub's": hubEnd, "the spoke's": spokeEnd} {
		select {
		case err := <-errs:
			t.Logf("%s end after %s: %v", end, time.Since(began), err)
			if !errors.Is(err, stream.ErrUnavailable) {
				t.Errorf("%s end has %v, want an error of kind %q", end, err, stream.ErrUnavailable)
			}
		case <-late:
			t.Fatalf("after %s %s end is still open", foundWithin, end)
		}
	}
	if err := <-dialed; !errors.Is(err, stream.ErrSilent) {
		t.Errorf("Dial() = %v, want an error of kind %q", err, stream.ErrSilent)
	}
	kit.Eventually(t, "the agent to be away", func() bool {
		_, err := h.dialer.Dial(kit.Context(t), kit.Agent(t, "edge-1"), stream.Redis)
		return errors.Is(err, stream.ErrNotConnected)
	})
}
