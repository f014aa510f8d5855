package tunnel_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/tunnel"
	"github.com/argomesh/argomesh/test/kit"
)

const (
	maxUnread = 64 << 20
	window    = 256 << 10
	overruns  = "argomesh_tunnel_overruns_total"
	unread    = "argomesh_tunnel_unread_bytes"
)

// What a hub sends and the services of a spoke do not read is bounded at the agent, over all
// of its streams: a stream beyond that ends, and says why. The others go on.
func TestUnreadOfTheHubIsBound(t *testing.T) {
	h := newHub(t, nil, nil)
	release := make(chan struct{})
	stuck := func(ctx context.Context, conn net.Conn) error {
		_, err := conn.Read(nil) // the service is there
		select {
		case <-ctx.Done():
		case <-release:
		}
		return err
	}
	s := h.spoke("edge-1", map[stream.Service]tunnel.Handler{stream.Redis: stuck, stream.Kubernetes: echo}, nil)
	witness := h.dial("edge-1", stream.Kubernetes)
	full := make([]byte, window)
	for range maxUnread / window {
		c := h.dial("edge-1", stream.Redis)
		write(t, c, full)
	}
	kit.Eventually(t, "as much as may be unread", func() bool { return metric(t, s.metrics, unread) == maxUnread })
	if n := metric(t, s.metrics, overruns); n != 0 {
		t.Fatalf("%v streams ended at the limit", n)
	}
	beyond := h.dial("edge-1", stream.Redis)
	write(t, beyond, full[:1])
	var refused *tunnel.ServiceError
	if _, err := beyond.Read(make([]byte, 1)); !errors.As(err, &refused) || refused.Reason != tunnel.ReasonBusy {
		t.Errorf("beyond the limit Read() = %v, want the reason %q", err, tunnel.ReasonBusy)
	}
	if n := metric(t, s.metrics, overruns); n != 1 {
		t.Errorf("%v streams ended beyond the limit", n)
	}
	close(release)
	kit.Eventually(t, "nothing unread of streams that are over", func() bool { return metric(t, s.metrics, unread) == 0 })
	exchange(t, witness, "as before")
}

// What an agent sends and the callers of the hub do not read is bounded for each agent: one
// that has filled its part does not take that of another.
func TestUnreadOfAnAgentIsBound(t *testing.T) {
	h := newHub(t, nil, nil)
	flood := func(_ context.Context, conn net.Conn) error {
		_, err := conn.Write(make([]byte, window))
		if err == nil {
			_, err = io.Copy(io.Discard, conn)
		}
		return err
	}
	h.spoke("edge-1", only(stream.Redis, flood), nil)
	h.spoke("edge-2", only(stream.Redis, echo), nil)
	for range maxUnread / window {
		h.dial("edge-1", stream.Redis)
	}
	kit.Eventually(t, "as much as may be unread", func() bool { return metric(t, h.metrics, unread) == maxUnread })
	if n := metric(t, h.metrics, overruns); n != 0 {
		t.Fatalf("%v streams ended at the limit", n)
	}
	beyond := h.dial("edge-1", stream.Redis)
	if _, err := io.Copy(io.Discard, beyond); !errors.Is(err, stream.ErrUnavailable) {
		t.Errorf("beyond the limit a read ends with %v", err)
	}
	if n := metric(t, h.metrics, overruns); n == 0 {
		t.Error("no stream ended beyond the limit")
	}
	exchange(t, h.dial("edge-2", stream.Redis), "another agent")
}

func write(t *testing.T, c net.Conn, b []byte) {
	t.Helper()
	if err := c.SetWriteDeadline(time.Now().Add(kit.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(b); err != nil {
		t.Fatalf("Write() = %v", err)
	}
}
