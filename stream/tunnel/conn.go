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

// pace is the times of a connection.
type pace struct {
	heartbeat time.Duration // between two of ours
	silence   time.Duration // after which the peer is gone, or has not answered a close
}

// conn is one stream, and the net.Conn that it becomes when it is taken: a channel with a
// lock, clocks and a wire. A goroutine sends whenever there is something, and an idle
// connection has none. All methods may be called from several goroutines at once.
type conn struct {
	pace  pace
	wire  wire
	hooks hooks

	writing sync.Mutex // held for all of a Write, whose bytes stay together

	mu       sync.Mutex // guards what follows
	ch       channel
	readable sync.Cond
	writable sync.Cond
	answered chan struct{} // closed when stageOpening ends
	closed   chan struct{} // closed when our end is
	heard    time.Time     // when the peer was last heard
	sending  bool          // a goroutine is at it
	bytes    counters
	readBy   deadline
	writeBy  deadline
	timers   timers
}

// hooks tell of a connection. They are set before receive is called.
type hooks struct {
	// finished is called once, with mu held, when nothing more is sent or received:
	// with nil when both sides closed in good order.
	finished func(error)
	// asked is called at the spoke when the stream was taken, without mu held. Nil
	// at the hub.
	asked func(stream.Service, int)
	// spent is called, perhaps again, with mu held, when the connection is of no more
	// use at this end. Nil at the hub.
	spent func()
	// spend is called for each chunk that comes. Nil at the spoke.
	spend func()
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

// newConn returns a spare stream. Its clock runs; receive must be called.
func newConn(side stream.Side, agent identity.AgentName, id string, p pace, w wire, finished func(error)) *conn {
	c := &conn{
		pace: p, wire: w, hooks: hooks{finished: finished}, ch: newChannel(side, agent, id), heard: time.Now(),
		answered: make(chan struct{}), closed: make(chan struct{}),
	}
	c.readable.L, c.writable.L = &c.mu, &c.mu
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timers.beat = time.AfterFunc(rand.N(p.heartbeat)+1, c.tick) // not all of an agent at once
	c.timers.silent = time.AfterFunc(p.silence, c.listen)
	return c
}

// locked runs f on the channel, and does what follows.
func (c *conn) locked(f func(*channel)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.ch)
	c.follow()
}

// follow does what follows from calls of the channel, and sends what is to be sent. mu is
// held.
func (c *conn) follow() {
	e := c.ch.effects
	c.ch.effects = effects{}
	if e.answered {
		close(c.answered)
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
	if e.spent && c.hooks.spent != nil {
		c.hooks.spent()
	}
	if e.finished {
		c.hooks.finished(c.ch.err)
	}
	c.send()
}

// tick sends a heartbeat.
func (c *conn) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ch.over {
		return
	}
	c.ch.out.beat = true
	c.send()
	c.timers.beat.Reset(c.pace.heartbeat)
}

// listen ends the stream when nothing came for too long.
func (c *conn) listen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ch.over {
		return
	}
	if left := c.pace.silence - time.Since(c.heard); left > 0 {
		c.timers.silent.Reset(left)
		return
	}
	c.ch.finish(fmt.Errorf("nothing came for %s: %w: %w", c.pace.silence, stream.ErrSilent, ErrLost))
	c.follow()
}

// end finishes the stream for a failure.
func (c *conn) end(err error) { c.locked(func(ch *channel) { ch.finish(err) }) }

// revoke finishes the stream for a failure after which nothing that it brought may
// be read.
func (c *conn) revoke(err error) { c.locked(func(ch *channel) { ch.revoke(err) }) }

// failure is why the stream is over; nil when it is not, or in good order.
func (c *conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ch.err
}

// greet sends a hello with our proof.
func (c *conn) greet(p call.Proof) {
	c.locked(func(ch *channel) {
		ch.out.hello = &chunk{kind: kindHello, agent: ch.agent, connection: ch.id, nonce: p.Nonce, proof: p.Token, proveAgain: p.ProveAgain}
	})
}

// occupy takes a spare stream for a dial, and reports whether it is one still.
// waiting is how many more dials wait.
func (c *conn) occupy(service stream.Service, waiting int, in, out prometheus.Counter) (occupied bool) {
	c.locked(func(ch *channel) {
		if occupied = ch.occupy(service, waiting); occupied {
			c.bytes = counters{in: in, out: out}
		}
	})
	return occupied
}

// outcome is what became of an occupied stream, once it is answered.
func (c *conn) outcome() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ch.refusal
}

// retire closes a stream that is spare, and reports whether it did: one that the hub has
// opened goes on.
func (c *conn) retire() (retired bool) {
	c.locked(func(ch *channel) { retired = ch.retire() })
	return retired
}

// abandon closes the spoke's end for a reason. A hub that waits for the answer is
// refused, and reads fail there else.
func (c *conn) abandon(r Reason) { c.locked(func(ch *channel) { ch.abandon(r) }) }

// serving is the service the stream was taken for; zero while it is spare.
func (c *conn) serving() stream.Service {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ch.service
}

// accepted reports whether the hub was told that it is connected.
func (c *conn) accepted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ch.stage == stageOpen
}

// measure sets where the bytes are counted.
func (c *conn) measure(in, out prometheus.Counter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes = counters{in: in, out: out}
}
