package tunnel

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/streampb"
)

// wire is the gRPC stream below a connection, at either end. One goroutine sends at
// a time, and one receives.
type wire interface {
	Send(*streampb.Chunk) error
	Recv() (*streampb.Chunk, error)
}

// The times of a connection, unless a Config says otherwise: two missed heartbeats
// would be too late for a peer that is lost to be found within 30 s.
const (
	DefaultHeartbeat = 15 * time.Second
	DefaultSilence   = 25 * time.Second
)

// Timing is the times of a connection.
type Timing struct {
	Heartbeat time.Duration // between two of ours
	Silence   time.Duration // after which the peer is gone, or has not answered a close
}

// Conn is one stream, and the net.Conn that it becomes when it is taken: a channel with a
// lock, clocks and a wire. A goroutine sends whenever there is something, and an idle
// connection has none. All methods may be called from several goroutines at once.
type Conn struct {
	Agent  identity.AgentName
	ID     string // in both logs
	timing Timing
	wire   wire
	hooks  Hooks

	writing sync.Mutex // held for all of a Write, whose bytes stay together

	mu           sync.Mutex // guards what follows
	ch           channel
	readable     sync.Cond
	writable     sync.Cond
	Answered     chan struct{} // closed when stageOpening ends
	closed       chan struct{} // closed when our end is
	lastReceived time.Time     // when something last came from the peer
	sending      bool          // a goroutine is at it
	bytes        counters
	unread       int // bytes of hooks.Unread that are ours
	readBy       deadline
	writeBy      deadline
	timers       timers
}

// Hooks are called about a connection. Its clocks may call all but Asked and Spend as soon as
// there is a connection.
type Hooks struct {
	// Finished is called once, with mu held, when nothing more is sent or received:
	// with nil when both sides closed in good order.
	Finished func(error)
	// Asked is called at the spoke when the stream was taken, by Receive, without mu held.
	// Nil at the hub.
	Asked func(stream.Service, int)
	// Done is called, perhaps again, with mu held, when the connection is of no more
	// use at this end. Nil at the hub.
	Done func()
	// Spend is called by Receive for each chunk that comes. Nil at the spoke.
	Spend func()
	// Unread counts bytes more, or less, that have come and are not read, and reports whether as
	// many may be; with mu held. Nil means that the window bounds them.
	Unread func(bytes int) bool
}

// counters count the bytes of a connection; nil until they are known.
type counters struct{ in, out prometheus.Counter }

func (c counters) add(to prometheus.Counter, n int) {
	if to != nil {
		to.Add(float64(n))
	}
}

// timers are those of a connection.
type timers struct {
	beat   *time.Timer // for our heartbeats
	silent *time.Timer // for the peer's
	linger *time.Timer // for its close, once ours was sent; nil before
}

func (t *timers) stop() {
	t.beat.Stop()
	t.silent.Stop()
	if t.linger != nil {
		t.linger.Stop()
	}
}

// NewConn returns a spare stream. Its clocks run; Receive must be called.
func NewConn(side stream.Side, agent identity.AgentName, id string, p Timing, w wire, h Hooks) *Conn {
	c := &Conn{
		Agent: agent, ID: id, timing: p, wire: w, hooks: h, ch: newChannel(side, agent, id),
		lastReceived: time.Now(),
		Answered:     make(chan struct{}), closed: make(chan struct{}),
	}
	c.readable.L, c.writable.L = &c.mu, &c.mu
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timers.beat = time.AfterFunc(rand.N(p.Heartbeat)+1, c.tick) // not all of an agent at once
	c.timers.silent = time.AfterFunc(p.Silence, c.checkSilence)
	return c
}

// locked runs f on the channel, and does what follows.
func (c *Conn) locked(f func(*channel)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.ch)
	c.follow()
}

// follow does what follows from calls of the channel, and sends what is to be sent. mu is
// held.
func (c *Conn) follow() {
	countUnread(c)
	e := c.ch.pendingEffects
	c.ch.pendingEffects = effects{}
	if e.answered {
		close(c.Answered)
	}
	if e.closed {
		close(c.closed)
		c.readBy.clear()
		c.writeBy.clear()
	}
	if e.finished {
		c.timers.stop()
	}
	if e.readers {
		c.readable.Broadcast()
	}
	if e.writers {
		c.writable.Broadcast()
	}
	if e.done && c.hooks.Done != nil {
		c.hooks.Done()
	}
	if e.finished {
		c.hooks.Finished(c.ch.err)
	}
	c.send()
}

// countUnread counts what has come and is not read, and ends the stream where that is too
// much. mu is held.
func countUnread(c *Conn) {
	for c.hooks.Unread != nil && c.unread != c.ch.in.size {
		more := c.ch.in.size - c.unread
		c.unread += more
		if !c.hooks.Unread(more) {
			c.ch.overrun()
		}
	}
}

// tick sends a heartbeat.
func (c *Conn) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ch.finished {
		return
	}
	c.ch.out.beat = true
	c.send()
	c.timers.beat.Reset(c.timing.Heartbeat)
}

// checkSilence ends the stream when nothing came for too long.
func (c *Conn) checkSilence() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ch.finished {
		return
	}
	if left := c.timing.Silence - time.Since(c.lastReceived); left > 0 {
		c.timers.silent.Reset(left)
		return
	}
	c.ch.finish(fmt.Errorf("nothing came for %s: %w: %w", c.timing.Silence, stream.ErrSilent, ErrLost))
	c.follow()
}

// End finishes the stream for a failure.
func (c *Conn) End(err error) { c.locked(func(ch *channel) { ch.finish(err) }) }

// Revoke finishes the stream for a failure after which nothing that it brought may
// be read.
func (c *Conn) Revoke(err error) { c.locked(func(ch *channel) { ch.revoke(err) }) }

// Failure is why the stream is over; nil when it is not, or in good order.
func (c *Conn) Failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ch.err
}

// SendHello sends a hello with our proof.
func (c *Conn) SendHello(p call.Proof) {
	c.locked(func(ch *channel) {
		ch.out.hello = &chunk{kind: kindHello,
			Hello: Hello{Agent: ch.agent, Connection: ch.id, Nonce: p.Nonce, Proof: p.Token, ProveAgain: p.ProveAgain}}
	})
}

// Acquire takes a spare stream for a dial, and reports whether it is one still.
// waiting is how many more dials wait.
func (c *Conn) Acquire(service stream.Service, waiting int, in, out prometheus.Counter) (acquired bool) {
	c.locked(func(ch *channel) {
		if acquired = ch.acquire(service, waiting); acquired {
			c.bytes = counters{in: in, out: out}
		}
	})
	return acquired
}

// Outcome is what became of an acquired stream, once it is answered.
func (c *Conn) Outcome() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ch.refusal
}

// CloseIdle closes a stream that is spare, and reports whether it did: one that the hub has
// opened goes on.
func (c *Conn) CloseIdle() (closed bool) {
	c.locked(func(ch *channel) { closed = ch.closeIdle() })
	return closed
}

// CloseWith closes the spoke's end for a reason. A hub that waits for the answer is
// refused, and reads fail there else.
func (c *Conn) CloseWith(r Reason) { c.locked(func(ch *channel) { ch.closeWith(r) }) }

// Serving is the service the stream was taken for; zero while it is spare.
func (c *Conn) Serving() stream.Service {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ch.service
}

// Accepted reports whether the hub was told that it is connected.
func (c *Conn) Accepted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ch.stage == stageOpen
}

// Measure sets where the bytes are counted.
func (c *Conn) Measure(in, out prometheus.Counter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes = counters{in: in, out: out}
}
