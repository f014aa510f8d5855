package server

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream/call"
)

// maxAgentStreams is how many sync streams of one agent may be open at a time. One is in
// use; others are being taken over from, or are of a process that was lost.
const maxAgentStreams = 8

// arrivalsAtOnce is how often an agent may begin its sync stream in a row, and
// arrivalsPerSecond how often it may in a second from then on. Each begin costs the hub
// reads of its API server, a write of the agent's Agent, lines in its log, and a digest of
// all that the agent has.
const (
	arrivalsAtOnce    = 100
	arrivalsPerSecond = 1
)

// counted is a call on its connection: it is decided, and then over.
type counted struct {
	connection *connection
	agent      identity.AgentName // whose it is; zero as long as it was not admitted
}

type countedKey struct{}

// count follows each call on its connection. It is a grpc.StreamServerInterceptor.
func count(srv any, g grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	c := connectionOf(g.Context())
	if c == nil {
		return handler(srv, g)
	}
	k := c.begin()
	defer k.end()
	return handler(srv, &countedStream{g, context.WithValue(g.Context(), countedKey{}, k)})
}

type countedStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // gRPC asks the stream for it
}

// Context implements grpc.ServerStream.
func (s *countedStream) Context() context.Context { return s.ctx }

// unknown answers calls of what no one serves. By itself gRPC answers them too, but does
// not count them as calls.
func unknown(any, grpc.ServerStream) error {
	return status.Error(codes.Unimplemented, "unknown service or method")
}

// begin counts a call of which nothing is known yet.
func (c *connection) begin() *counted {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.deciding++
	return &counted{connection: c}
}

// end is called when it is over. Where no one is admitted any more, the connection ends
// soon.
func (k *counted) end() {
	c := k.connection
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if k.agent != (identity.AgentName{}) {
		c.leave(k.agent)
		return
	}
	c.deciding--
	if c.strangerElement != nil && !c.refused {
		c.refused = true
		c.due.Reset(refusalGrace)
		c.listener.signal()
	}
}

// open counts the call of ctx as admitted until it is over, and its connection as one of
// the agent's: call.ErrBusy when that has too many.
func (s *Server) open(ctx context.Context, agent identity.AgentName) error {
	k, ok := ctx.Value(countedKey{}).(*counted)
	if !ok {
		return nil
	}
	c := k.connection
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if !c.shared && c.calls[agent] == 0 {
		if !s.connections.enter(agent) {
			return call.ErrBusy
		}
		c.onLeave[agent] = func() { s.connections.leave(agent) }
	}
	k.agent = agent
	c.deciding--
	c.calls[agent]++
	c.listener.removeStranger(c)
	return nil
}

// leave counts an admitted call of the agent as over. The mu of the listener is held.
func (c *connection) leave(agent identity.AgentName) {
	if c.calls[agent]--; c.calls[agent] > 0 {
		return
	}
	delete(c.calls, agent)
	if onLeave := c.onLeave[agent]; onLeave != nil {
		delete(c.onLeave, agent)
		onLeave()
	}
	if len(c.calls) == 0 {
		c.listener.addStranger(c)
	}
}

// tally counts something of each agent up to a limit.
type tally struct {
	limit int

	mu      sync.Mutex // guards what follows
	byAgent map[identity.AgentName]int
}

func newTally(limit int) *tally { return &tally{limit: limit, byAgent: map[identity.AgentName]int{}} }

// enter counts one more, unless the agent has as many as it may.
func (t *tally) enter(agent identity.AgentName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byAgent[agent] >= t.limit {
		return false
	}
	t.byAgent[agent]++
	return true
}

// leave is called once for each that has entered.
func (t *tally) leave(agent identity.AgentName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byAgent[agent]--; t.byAgent[agent] == 0 {
		delete(t.byAgent, agent)
	}
}
