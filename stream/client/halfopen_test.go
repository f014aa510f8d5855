package client_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/client"
	"github.com/argomesh/argomesh/stream/server"
	"github.com/argomesh/argomesh/test/kit"
)

// hole forwards connections until it is told to swallow: then it still takes what
// both ends send, acknowledges it, and passes nothing on.
type hole struct {
	net.Listener
	to      string
	swallow chan struct{} // closed to begin
	wait    sync.WaitGroup
	mu      sync.Mutex // guards open
	open    []net.Conn
}

func newHole(t *testing.T, to string) *hole {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hole{Listener: l, to: to, swallow: make(chan struct{})}
	h.wait.Go(h.run)
	t.Cleanup(func() {
		_ = l.Close()
		h.cut()
		h.wait.Wait()
	})
	return h
}

// cut ends all connections.
func (h *hole) cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.open {
		_ = c.Close()
	}
}

func (h *hole) run() {
	for {
		in, err := h.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", h.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		h.mu.Lock()
		h.open = append(h.open, in, out)
		h.mu.Unlock()
		h.wait.Go(func() { h.pipe(out, in) })
		h.wait.Go(func() { h.pipe(in, out) })
	}
}

// pipe copies until it swallows. An end that closes is not passed on then either.
func (h *hole) pipe(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-h.swallow:
			if err != nil {
				return
			}
			continue
		default:
		}
		if err == nil {
			_, err = to.Write(buffer[:n])
		}
		if err != nil {
			_, _ = to.Close(), from.Close()
			return
		}
	}
}

// foundWithin is how long a connection may be half open: two and a half heartbeats
// of ten seconds by package link, or, where nothing is said, fifteen seconds of
// silence and ten for the answer to a ping by gRPC, and some for a busy machine.
const foundWithin = 30 * time.Second

// A way between the two that swallows everything and says nothing is found by both
// ends, with the heartbeats of a link, and by gRPC's pings where there are none. It
// takes real time: package mirror shows the heartbeats alone in virtual time.
func TestHalfOpenConnectionsAreFound(t *testing.T) {
	hub, edge1 := sources(t, time.Hour)
	for name, mirrors := range map[string]bool{"by the heartbeats of a link": true, "by pings": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait
			p := newPrincipal(t, hub)
			followed := newServed()
			serve := followed.serve
			if mirrors {
				onHub, onSpoke := newMirror(t, stream.Hub), newMirror(t, stream.Spoke)
				p.serving = func(ctx context.Context, s server.Session, conn *server.Conn) error {
					p.sessions <- s
					return onHub.Serve(ctx, mirror.Peer{Connection: s.Connection}, conn)
				}
				serve = func(ctx context.Context, w stream.Welcome, conn *client.Conn) error {
					return onSpoke.Serve(ctx, mirror.Peer{Connection: w.Connection, HubUID: w.HubUID}, conn)
				}
			}
			p.start()
			way := newHole(t, p.address)
			cfg := config(t, p, edge1)
			cfg.Target = way.Addr().String()
			ended := make(chan error, 64)
			cfg.Serve = func(ctx context.Context, w stream.Welcome, conn *client.Conn) error {
				err := serve(ctx, w, conn)
				ended <- err
				return err
			}
			cfg.Metrics, cfg.Log = prometheus.NewRegistry(), zerolog.Nop()
			c, err := client.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			kit.Background(t, c.Run)
			p.session()
			kit.Eventually(t, "the connection", c.Connected)
			close(way.swallow)
			began := time.Now()
			late := time.After(foundWithin)
			onSpoke, onHub := ended, p.closed
			for onSpoke != nil || onHub != nil {
				select {
				case err := <-onSpoke:
					t.Logf("the agent's end after %s: %v", time.Since(began), err)
					onSpoke = nil
				case <-onHub:
					t.Logf("the principal's end after %s", time.Since(began))
					onHub = nil
				case <-late:
					t.Fatalf("after %s the connection is still open: for the agent %t, for the principal %t", foundWithin, onSpoke != nil, onHub != nil)
				}
			}
		})
	}
}

func newMirror(t *testing.T, side stream.Side) *mirror.Mirror {
	t.Helper()
	metrics, err := linkmetrics.New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	m, err := mirror.New(mirror.Config{
		Rules: ownership.Rules{
			Marks: copies.Marks{
				Map: mapping.Map{
					Side: side, Mode: stream.Managed, Agent: edge1Name(t), Namespace: "argocd", ClusterServer: "https://proxy/agents/edge-1",
				},
			},
		},
		Store: memory.New(memory.Config{}), Metrics: metrics, Tracer: sdktrace.NewTracerProvider().Tracer(""), Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	kit.Background(t, m.Run)
	return m
}
