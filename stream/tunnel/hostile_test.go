package tunnel_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/server"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/stream/tunnel"
	"github.com/argomesh/argomesh/test/kit"
	"github.com/argomesh/argomesh/test/kit/spiffekit"
)

// chunks is an open call of a peer that sends what it likes.
type chunks struct {
	t testing.TB
	grpc.BidiStreamingClient[streampb.Chunk, streampb.Chunk]
}

// call opens a call with the SVID of edge-1.
func (h *hub) call() chunks {
	h.t.Helper()
	cc, err := grpc.NewClient(h.address, grpc.WithTransportCredentials(credentialsOf(h.trust.Source(edge1ID))), grpc.WithDisableServiceConfig())
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = cc.Close() })
	s, err := streampb.NewTunnelClient(cc).Serve(kit.Context(h.t))
	if err != nil {
		h.t.Fatal(err)
	}
	return chunks{h.t, s}
}

func (c chunks) send(all ...*streampb.Chunk) {
	c.t.Helper()
	for _, one := range all {
		if err := c.Send(one); err != nil && !errors.Is(err, io.EOF) {
			c.t.Fatal(err)
		}
	}
}

// next returns the next chunk that is no heartbeat.
func (c chunks) next() *streampb.Chunk {
	c.t.Helper()
	for {
		got, err := c.Recv()
		if err != nil {
			c.t.Fatal(err)
		}
		if got.GetHeartbeat() == nil {
			return got
		}
	}
}

// end waits for the end and returns its status.
func (c chunks) end() error {
	for {
		if _, err := c.Recv(); err != nil {
			return err
		}
	}
}

func helloChunk(change func(*streampb.TunnelHello)) *streampb.Chunk {
	h := &streampb.TunnelHello{Protocol: tunnel.Protocol, Agent: "edge-1"}
	if change != nil {
		change(h)
	}
	return &streampb.Chunk{Body: &streampb.Chunk_Hello{Hello: h}}
}

var (
	openedChunk = &streampb.Chunk{Body: &streampb.Chunk_Opened{Opened: &streampb.TunnelOpened{}}}
	finChunk    = &streampb.Chunk{Body: &streampb.Chunk_Fin{Fin: &streampb.TunnelFin{}}}
)

func dataChunk(n int) *streampb.Chunk {
	return &streampb.Chunk{Body: &streampb.Chunk_Data{Data: make([]byte, n)}}
}

// Who does not introduce itself as it should never gets a spare stream.
func TestBadHello(t *testing.T) {
	const handshakeTime = 3 * time.Second // enough for anyone who says hello
	h := newHub(t, nil, func(cfg *server.Config) { cfg.HandshakeTimeout = handshakeTime })
	for what, tt := range map[string]struct {
		first *streampb.Chunk
		code  codes.Code
		says  string
		logs  string
	}{
		"another protocol":    {helloChunk(func(h *streampb.TunnelHello) { h.Protocol = 2 }), codes.OutOfRange, "upgrade the older one", "protocol 2"},
		"another agent":       {helloChunk(func(h *streampb.TunnelHello) { h.Agent = "edge-2" }), codes.FailedPrecondition, `configured as "edge-2"`, `configured as "edge-2"`},
		"a name that is none": {helloChunk(func(h *streampb.TunnelHello) { h.Agent = "../edge-1" }), codes.InvalidArgument, "protocol violation: malformed", "../edge-1"},
		"no hello":            {finChunk, codes.InvalidArgument, "protocol violation: order", "first chunk is not hello"},
		"an empty chunk":      {&streampb.Chunk{}, codes.InvalidArgument, "protocol violation: order", "first chunk is not hello"},
		"nothing":             {nil, codes.InvalidArgument, "protocol violation", "no hello within " + handshakeTime.String()},
	} {
		t.Run(what, func(t *testing.T) {
			c := h.call()
			if tt.first != nil {
				c.send(tt.first)
			}
			err := c.end()
			if status.Code(err) != tt.code || !strings.Contains(status.Convert(err).Message(), tt.says) {
				t.Errorf("the call ends with %v, want %s %q", err, tt.code, tt.says)
			}
			h.log.Wait(t, "message", "connection refused", "error", tt.logs)
			if _, err := h.dialer.Dial(kit.Context(t), kit.Agent(t, "edge-1"), stream.Redis); !errors.Is(err, stream.ErrNotConnected) {
				t.Errorf("Dial() = %v, want %v", err, stream.ErrNotConnected)
			}
		})
	}
}

// An agent that breaks the protocol loses that one stream, and the caller has an
// error; the kind is in the status and in the metric.
func TestHostileAgent(t *testing.T) {
	h := newHub(t, nil, nil)
	h.spoke("edge-2", only(stream.Redis, echo), nil)
	witness := h.dial("edge-2", stream.Redis)
	full := func(n int) []*streampb.Chunk {
		all := []*streampb.Chunk{openedChunk}
		for range n {
			all = append(all, dataChunk(32<<10))
		}
		return all
	}
	for what, tt := range map[string]struct {
		chunks []*streampb.Chunk
		kind   stream.Violation
		dials  bool // the dial itself fails
	}{
		"data before the answer":   {[]*streampb.Chunk{dataChunk(1)}, stream.ViolationOrder, true},
		"endless data":             {full(9), stream.ViolationLimit, false},
		"a chunk that is too long": {[]*streampb.Chunk{openedChunk, dataChunk(32<<10 + 1)}, stream.ViolationLimit, false},
		"one of 8 MiB":             {[]*streampb.Chunk{openedChunk, dataChunk(8<<20 - 100)}, stream.ViolationLimit, false},
		"data after the end":       {[]*streampb.Chunk{openedChunk, finChunk, dataChunk(1)}, stream.ViolationOrder, false},
		"an open of its own": {[]*streampb.Chunk{{Body: &streampb.Chunk_Open{Open: &streampb.TunnelOpen{Service: "redis"}}}},
			stream.ViolationDirection, true},
	} {
		t.Run(what, func(t *testing.T) {
			counted := metric(t, h.metrics, "argomesh_tunnel_violations_total", string(tt.kind))
			c := h.call()
			c.send(helloChunk(nil))
			if got := c.next().GetHello(); got.GetAgent() != "edge-1" || got.GetConnection() == "" {
				t.Fatalf("hello of the principal = %v", got)
			}
			type result struct {
				conn net.Conn
				err  error
			}
			dialled := make(chan result, 1)
			go func() {
				conn, err := h.dialer.Dial(kit.Context(t), kit.Agent(t, "edge-1"), stream.Redis)
				dialled <- result{conn, err}
			}()
			if got := c.next().GetOpen(); got.GetService() != "redis" || got.GetWaiting() != 0 {
				t.Fatalf("open of the principal = %v", got)
			}
			c.send(tt.chunks...)
			r := <-dialled
			if r.err == nil {
				defer func() { _ = r.conn.Close() }()
			}
			err := c.end()
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(status.Convert(err).Message(), string(tt.kind)) {
				t.Errorf("the call ends with %v, want %s", err, tt.kind)
			}
			if tt.dials && r.err == nil {
				t.Error("Dial() succeeds")
			}
			if r.err == nil && tt.kind != stream.ViolationOrder { // an end that came before is one
				if _, err := io.Copy(io.Discard, r.conn); stream.ViolationOf(err) != tt.kind {
					t.Errorf("Read() = %v, want violation %q", err, tt.kind)
				}
			}
			kit.Eventually(t, "the violation to be counted", func() bool {
				return metric(t, h.metrics, "argomesh_tunnel_violations_total", string(tt.kind)) == counted+1
			})
			exchange(t, witness, "undisturbed")
		})
	}
}

// principal is a gRPC server that sends what it likes.
type principal struct {
	streampb.UnimplementedTunnelServer
	serve func(grpc.BidiStreamingServer[streampb.Chunk, streampb.Chunk]) error
}

func (p principal) Serve(g grpc.BidiStreamingServer[streampb.Chunk, streampb.Chunk]) error {
	return p.serve(g)
}

// An agent that opens streams and breaks the protocol on them, again and again, does not
// fill the log of the hub: all are counted.
func TestTunnelsDoNotFloodTheLog(t *testing.T) {
	h := newHub(t, nil, nil)
	began := time.Now()
	const streams = 200
	cc, err := grpc.NewClient(h.address, grpc.WithTransportCredentials(credentialsOf(h.trust.Source(edge1ID))), grpc.WithDisableServiceConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	for range streams {
		s, err := streampb.NewTunnelClient(cc).Serve(kit.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		c := chunks{t, s}
		c.send(helloChunk(nil), helloChunk(nil))
		if err := c.end(); status.Code(err) != codes.InvalidArgument {
			t.Fatalf("the stream ends with %v", err)
		}
	}
	lines := 0
	all, _ := h.log.Lines()
	for _, line := range all {
		if m, _ := line["message"].(string); strings.HasPrefix(m, "tunnel ") {
			lines++
		}
	}
	if most := 20 + int(time.Since(began)/time.Second) + 1; lines > most || lines == 0 {
		t.Errorf("%d streams write %d lines, want %d at most", streams, lines, most)
	}
	if got := metric(t, h.metrics, "argomesh_tunnel_violations_total", string(stream.ViolationOrder)); got != streams {
		t.Errorf("%v violations are counted, want %d", got, streams)
	}
}

// An agent survives a principal that is broken, or of another release, and says in
// its log what is wrong.
func TestHostilePrincipal(t *testing.T) {
	open := func(service string) *streampb.Chunk {
		return &streampb.Chunk{Body: &streampb.Chunk_Open{Open: &streampb.TunnelOpen{Service: service}}}
	}
	for what, tt := range map[string]struct {
		serve   func(grpc.BidiStreamingServer[streampb.Chunk, streampb.Chunk]) error // nil: no such service
		logs    string
		error   string
		violate stream.Violation
	}{
		"no tunnel":             {nil, "the principal has no tunnel that this agent understands", "unknown service", ""},
		"another protocol":      {says(helloChunk(func(h *streampb.TunnelHello) { h.Protocol = 2 })), "the principal has no tunnel that this agent understands", "protocol 2", ""},
		"another agent":         {says(helloChunk(func(h *streampb.TunnelHello) { h.Agent = "edge-2" })), "cannot open the tunnel", `takes this agent for "edge-2"`, ""},
		"no hello":              {says(open("redis")), "cannot open the tunnel", "first chunk is not hello", stream.ViolationOrder},
		"silence":               {says(), "cannot open the tunnel", "no hello in time", ""},
		"an end at once":        {func(grpc.BidiStreamingServer[streampb.Chunk, streampb.Chunk]) error { return nil }, "cannot open the tunnel", "EOF", ""},
		"data out of order":     {says(helloChunk(nil), dataChunk(1)), "tunnel connection to the principal ended", "order", stream.ViolationOrder},
		"data before an answer": {says(helloChunk(nil), open("redis"), dataChunk(1)), "tunnel stream ended by a violation", "order", stream.ViolationOrder},
	} {
		t.Run(what, func(t *testing.T) {
			leavesNothing(t)
			trust := spiffekit.New(t, domain)
			s := grpc.NewServer(grpc.Creds(trust.Source(principalID).ServerCredentials(zerolog.Nop())))
			if tt.serve != nil {
				streampb.RegisterTunnelServer(s, principal{serve: tt.serve})
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			kit.Background(t, func(ctx context.Context) error {
				go func() { <-ctx.Done(); s.Stop() }()
				return s.Serve(l)
			})
			h := &hub{t: t, trust: trust, address: l.Addr().String()}
			cfg := h.config("edge-1", trust.Source(edge1ID), only(stream.Redis, echo))
			cfg.BackOff, cfg.HandshakeTimeout = call.BackOff{Min: time.Millisecond, Max: 2 * time.Millisecond, Upgrade: time.Hour}, 300*time.Millisecond
			a := accept(t, cfg)
			a.log.Wait(t, "message", tt.logs, "error", tt.error)
			if got := metric(t, a.metrics, "argomesh_tunnel_violations_total", string(tt.violate)); tt.violate != "" && got == 0 {
				t.Errorf("no violation of kind %q is counted", tt.violate)
			}
		})
	}
}

// says is a principal that sends these chunks and then waits.
func says(all ...*streampb.Chunk) func(grpc.BidiStreamingServer[streampb.Chunk, streampb.Chunk]) error {
	return func(g grpc.BidiStreamingServer[streampb.Chunk, streampb.Chunk]) error {
		for _, c := range all {
			if err := g.Send(c); err != nil {
				return err
			}
		}
		<-g.Context().Done()
		return g.Context().Err()
	}
}
