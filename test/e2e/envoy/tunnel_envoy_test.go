//go:build linux

package envoy

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/nettest"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/tunnel/acceptor"
	"github.com/argomesh/argomesh/test/e2e/internal/env"
)

// tunnelWindow is how many bytes of one direction of a connection may be on their way.
const tunnelWindow = 256 << 10

// Through Envoy, too, a connection is a net.Conn as the standard library understands it,
// seen from either end.
func TestEnvoyTunnelIsAConn(t *testing.T) {
	throughEnvoy(t, func(w *tunnelEnv) {
		s := w.spoke(env.Managed, nil)
		for end, turn := range map[string]bool{"from the hub": false, "from the spoke": true} {
			w.t.Run(end, func(t *testing.T) {
				nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
					c1, c2 = w.in(t).pair(env.Managed, s)
					if turn {
						c1, c2 = c2, c1
					}
					return c1, c2, func() { _, _ = c1.Close(), c2.Close() }, nil
				})
			})
		}
	})
}

// Each direction ends by itself, and the other goes on.
func TestEnvoyTunnelHalfCloses(t *testing.T) {
	throughEnvoy(t, func(w *tunnelEnv) {
		s := w.spoke(env.Managed, nil)
		for first, turn := range map[string]bool{"the hub ends first": false, "the spoke ends first": true} {
			w.t.Run(first, func(t *testing.T) {
				a, b := w.in(t).pair(env.Managed, s)
				if turn {
					a, b = b, a
				}
				// The answer begins when the question is at its end. Both are more than the window.
				for _, way := range []struct {
					from, to halfConn
					bytes    int
				}{{a, b, 700 << 10}, {b, a, 900 << 10}} {
					data := make([]byte, way.bytes)
					_, _ = rand.Read(data) // it never fails, says its documentation
					var g errgroup.Group
					g.Go(func() error {
						if _, err := way.from.Write(data); err != nil {
							return err
						}
						return way.from.CloseWrite()
					})
					got, err := io.ReadAll(way.to)
					if err := errors.Join(err, g.Wait()); err != nil || !bytes.Equal(got, data) {
						t.Fatalf("read %d bytes, %v, want %d as they were written", len(got), err, len(data))
					}
					if n, err := way.to.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
						t.Errorf("Read() at the end = %d, %v, want %v", n, err, io.EOF)
					}
					if _, err := way.from.Write([]byte("x")); err == nil {
						t.Error("Write() after CloseWrite() succeeds")
					}
				}
				if err := errors.Join(a.Close(), b.Close()); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// stalledTunnels is how many connections stand still beside others on the same TCP
// connections, of which one carries 64. Envoy lets 24 MiB of one wait, and 16 MiB of each
// of its streams: two that were not bounded would fill it, 64 that are cannot.
const stalledTunnels = 50

// stall writes more than its window to a connection, which ends with it.
func stall(c halfConn) {
	go func() { _, _ = c.Write(make([]byte, 4*tunnelWindow)) }()
}

// A reader that stands still takes its window and no more, and keeps neither others of
// its agent waiting nor those of another, in either direction.
func TestEnvoyTunnelReadersThatStandStill(t *testing.T) {
	throughEnvoy(t, func(w *tunnelEnv) {
		s := w.spoke(env.Managed, few)
		w.spoke(env.Autonomous, few)
		others := []halfConn{w.dial(env.Managed, stream.Redis), w.dial(env.Autonomous, stream.Redis)}
		for range stalledTunnels {
			hubEnd, spokeEnd := w.pair(env.Managed, s)
			stall(hubEnd)
			stall(spokeEnd)
		}
		const all = stalledTunnels * tunnelWindow
		full := func() error {
			for _, direction := range []string{"sent", "received"} {
				for end, r := range map[string]float64{
					"hub":   measured(w.t, w.metrics, "argomesh_tunnel_bytes_total", stream.Kubernetes.String(), direction),
					"spoke": measured(w.t, s.metrics, "argomesh_tunnel_bytes_total", stream.Kubernetes.String(), direction),
				} {
					if r != all {
						return fmt.Errorf("the %s has %s %v bytes, want %d", end, direction, r, all)
					}
				}
			}
			return nil
		}
		w.await("all stand still", full)
		w.progress(others)
		if err := full(); err != nil {
			w.t.Errorf("while others went on: %v", err)
		}
		if n := measured(w.t, s.metrics, "argomesh_tunnel_carriers"); n != 1 {
			w.t.Errorf("%v TCP connections of the agent, want the same for all", n)
		}
		w.shared()
	})
}

// An agent that reads nothing at all leaves what is for it with Envoy, which keeps
// no one else waiting on the connection that it has to the principal.
func TestEnvoyTunnelAgentThatStandsStill(t *testing.T) {
	throughEnvoy(t, func(w *tunnelEnv) {
		s := w.spoke(env.Managed, few)
		w.spoke(env.Autonomous, few)
		others := []halfConn{w.dial(env.Autonomous, stream.Redis)}
		var still []halfConn
		for range stalledTunnels {
			hubEnd, _ := w.pair(env.Managed, s)
			still = append(still, hubEnd)
		}
		w.shared()
		paused, before := w.statistic("cluster.next.upstream_flow_control_paused_reading_total"), w.statistic("cluster.next.upstream_cx_rx_bytes_total")
		s.cable.clog()
		for _, c := range still {
			stall(c)
		}
		w.await("Envoy has all that may be on its way", func() error {
			return noLess(w.statistic("cluster.next.upstream_cx_rx_bytes_total")-before, stalledTunnels*tunnelWindow)
		})
		w.await("Envoy cannot pass it on", func() error {
			return noLess(w.statistic("cluster.next.upstream_flow_control_paused_reading_total")-paused, 1)
		})
		w.progress(others)
		w.shared()
	})
}

// few is for an agent all of whose streams are to be on one TCP connection.
func few(cfg *acceptor.Config) { cfg.MaxSpares = 1 }

// progress checks that connections go on, and that an agent of each can be dialled.
func (w *tunnelEnv) progress(conns []halfConn) {
	w.t.Helper()
	for _, c := range conns {
		agent, _, _ := strings.Cut(c.RemoteAddr().String(), "/")
		for what, c := range map[string]halfConn{"an open connection": c, "a new connection": w.dial(agent, stream.Redis)} {
			if err := bounce(c, 8*tunnelWindow); err != nil {
				w.t.Fatalf("%s of %s does not go on: %v", what, agent, err)
			}
		}
	}
}

// shared checks that the streams of all agents are on one connection to the principal.
func (w *tunnelEnv) shared() {
	w.t.Helper()
	if n := w.statistic("cluster.next.upstream_cx_active"); n != 1 {
		w.t.Errorf("Envoy has %v connections to the principal, want one for all", n)
	}
}

// However one end of a connection is lost to the other, neither takes it for the end of
// what is said; and the next connection is as good as the first.
func TestEnvoyTunnelLossesAreErrors(t *testing.T) {
	throughEnvoy(t, func(w *tunnelEnv) {
		kill := func(*tunnelSpoke) {
			if err := w.gateway.Kill(); err != nil {
				w.t.Fatal(err)
			}
		}
		start := func() {
			if err := w.gateway.Start(w.t.Context()); err != nil {
				w.t.Fatal(err)
			}
		}
		for what, tt := range map[string]struct {
			lose func(*tunnelSpoke)
			mend func() // nil: nothing is to be done
			// stopped says that no other connection can follow.
			stopped bool
		}{
			"the agent's connections are reset": {lose: func(s *tunnelSpoke) { s.cable.cut(true) }},
			"the agent's connections end":       {lose: func(s *tunnelSpoke) { s.cable.cut(false) }},
			"the agent stops":                   {lose: func(s *tunnelSpoke) { s.stop() }, stopped: true},
			"Envoy is killed":                   {lose: kill, mend: start},
			"Envoy stops": {lose: func(*tunnelSpoke) {
				if err := w.gateway.Stop(w.t.Context()); err != nil {
					w.t.Fatal(err)
				}
			}, mend: start},
		} {
			w.t.Run(what, func(t *testing.T) {
				w.in(t).lost(tt.lose, tt.mend, tt.stopped)
			})
		}
	})
}

// lost has an agent whose connections are lost in every state.
func (w *tunnelEnv) lost(lose func(*tunnelSpoke), mend func(), stopped bool) {
	s := w.spoke(env.Managed, nil)
	type end struct {
		what string
		conn halfConn
	}
	var ends []end
	for what, prepare := range map[string]func(hubEnd, spokeEnd halfConn) error{
		"idle": func(_, _ halfConn) error { return nil },
		"after the hub's end": func(hubEnd, spokeEnd halfConn) error {
			if err := hubEnd.CloseWrite(); err != nil {
				return err
			}
			_, err := io.Copy(io.Discard, spokeEnd)
			return err
		},
		"while both write": func(hubEnd, spokeEnd halfConn) error {
			talk := func(c io.Writer) {
				for piece := make([]byte, tunnelWindow); ; {
					if _, err := c.Write(piece); err != nil {
						return
					}
				}
			}
			go talk(hubEnd)
			go talk(spokeEnd)
			_, err := io.CopyN(io.Discard, hubEnd, 4*tunnelWindow)
			return err
		},
	} {
		hubEnd, spokeEnd := w.pair(env.Managed, s)
		if err := prepare(hubEnd, spokeEnd); err != nil {
			w.t.Fatal(err)
		}
		ends = append(ends, end{"the hub's end " + what, hubEnd})
		if what != "after the hub's end" { // where it has come
			ends = append(ends, end{"the spoke's end " + what, spokeEnd})
		}
	}
	lose(s)
	for _, e := range ends {
		if err := e.conn.SetReadDeadline(time.Now().Add(env.Patience)); err != nil && !errors.Is(err, net.ErrClosed) {
			w.t.Error(err)
		}
		n, err := io.Copy(io.Discard, e.conn)
		if err == nil {
			w.t.Errorf("%s: Read() = %v after %d bytes, as if all had been said", e.what, io.EOF, n)
		}
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			w.t.Errorf("%s: the loss is not seen", e.what)
		}
	}
	if mend != nil {
		mend()
	}
	if stopped {
		return
	}
	w.await("the next connection", func() error {
		c, err := w.open(env.Managed, stream.Redis)
		if err != nil {
			return err
		}
		return bounce(c, tunnelWindow)
	})
}

// manyTunnels are more than three TCP connections carry.
const manyTunnels = 200

// Many connections at once go over as many TCP connections as they need. No one on the
// way refuses a stream, and when they have ended there is no more than before.
func TestEnvoyTunnelCarriesMany(t *testing.T) {
	throughEnvoy(t, func(w *tunnelEnv) {
		s := w.spoke(env.Managed, func(cfg *acceptor.Config) { cfg.Review = 100 * time.Millisecond })
		first := w.dial(env.Managed, stream.Redis)
		if err := errors.Join(bounce(first, tunnelWindow), first.Close()); err != nil {
			w.t.Fatal(err)
		}
		w.await("the first connection ends", func() error { return w.connected(s, 0) })
		before := w.resources()

		conns := make([]halfConn, manyTunnels)
		each := func(do func(i int) error) {
			w.t.Helper()
			var g errgroup.Group
			for i := range conns {
				g.Go(func() error {
					if err := do(i); err != nil {
						return fmt.Errorf("connection %d: %w", i, err)
					}
					return nil
				})
			}
			if err := g.Wait(); err != nil {
				w.t.Fatal(err)
			}
		}
		each(func(i int) (err error) {
			conns[i], err = w.open(env.Managed, stream.Redis)
			return err
		})
		if err := w.connected(s, manyTunnels); err != nil {
			w.t.Error(err)
		}
		for range 3 {
			each(func(i int) error { return bounce(conns[i], 64<<10) })
		}
		if err := noLess(w.statistic("http.agents.downstream_cx_active"), 4); err != nil {
			w.t.Errorf("TCP connections of the agent: %v", err)
		}
		each(func(i int) error { return conns[i].Close() })
		w.await("all is given back", func() error {
			if now := w.resources(); now.goroutines > before.goroutines || now.streams > before.streams ||
				now.downstream > before.downstream || now.upstream > before.upstream {
				return fmt.Errorf("there are %+v, there were %+v", now, before)
			}
			return nil
		})
		const streams = "argomesh_tunnel_streams_total"
		if all, good := measured(w.t, s.metrics, streams), measured(w.t, s.metrics, streams, codes.OK.String()); all != good || good < manyTunnels {
			w.t.Errorf("%v of %v streams have ended in good order", good, all)
		}
	})
}

// connected checks how many connections there are to a spoke that echoes, at both ends.
func (w *tunnelEnv) connected(s *tunnelSpoke, want float64) error {
	hub, spoke := measured(w.t, w.metrics, "argomesh_tunnel_connections"), measured(w.t, s.metrics, "argomesh_tunnel_connections")
	if hub != want || spoke != want {
		return fmt.Errorf("%v connections at the hub and %v at the spoke, want %v", hub, spoke, want)
	}
	return nil
}

// resources is what an environment has. Each connection of ours is one of Envoy's, too, so that
// these count our descriptors.
type resources struct {
	goroutines                    int
	streams, downstream, upstream float64
}

func (w *tunnelEnv) resources() resources {
	w.t.Helper()
	return resources{
		w.goroutines(), w.statistic("http.agents.downstream_rq_active"),
		w.statistic("http.agents.downstream_cx_active"), w.statistic("cluster.next.upstream_cx_active"),
	}
}
