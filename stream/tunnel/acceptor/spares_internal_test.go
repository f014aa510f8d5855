package acceptor

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream/tunnel"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/argomesh/argomesh/stream"
)

// However many dials wait, an agent opens so few streams at a time that a proxy can put
// all of them onto one connection to the principal. The next follow as soon as one is
// open, as long as someone waits.
func TestStreamsAreOpenedFewAtATime(t *testing.T) {
	a, err := New(Config{
		Target: "127.0.0.1:1", Credentials: insecure.NewCredentials(), Agent: edge1(t), Metrics: prometheus.NewRegistry(),
		Services: map[stream.Service]tunnel.Handler{stream.Redis: func(context.Context, net.Conn) error { return nil }},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := newRun(a)
	ctx, cancel := context.WithCancel(t.Context())
	defer func() {
		cancel()
		r.stopping = true
		for len(r.streams) > 0 {
			r.handle(<-r.events)
		}
	}()
	count := func() (opened int) {
		for s := range r.streams {
			if s.state == opening {
				opened++
			}
		}
		return opened
	}
	up := func(s *tunnelStream) { s.state, s.transport.up = idle, time.Now() }
	take := func(s *tunnelStream, waiting int) {
		r.handle(streamEvent{of: s, kind: inUse, waiting: waiting})
		r.balance(ctx)
	}
	r.backingOff = false
	r.balance(ctx)
	if got := count(); got != 1 {
		t.Fatalf("%d streams are opened before one is up", got)
	}
	const waiting = 5 * maxOpening
	for left := waiting; left >= 0; left-- {
		for s := range r.streams {
			if s.state == opening {
				up(s)
				take(s, left)
				break
			}
		}
		switch got := count(); {
		case got > maxOpening:
			t.Fatalf("%d streams are opened at a time while %d dials wait, want at most %d", got, left, maxOpening)
		case got < min(left, maxOpening):
			t.Fatalf("%d streams are opened while %d dials wait", got, left)
		}
	}
	for count() > 0 {
		for s := range r.streams {
			if s.state == opening {
				up(s)
			}
		}
		r.balance(ctx)
	}
	if ready, _, _ := r.count(time.Time{}); ready != a.cfg.MaxSpares {
		t.Errorf("%d streams are spare when nobody waits any more, want %d", ready, a.cfg.MaxSpares)
	}
}

func edge1(t testing.TB) identity.AgentName {
	t.Helper()
	name, err := identity.ParseAgentName("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	return name
}
