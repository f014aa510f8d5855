package tunnel

import (
	"cmp"
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

// Limits of one connection, beside those of the wire.
const (
	// maxPiece bounds the bytes of one chunk of ours. With them a chunk is not longer
	// than 32 KiB in all, the size of gRPC's buffers: for one byte more it takes a
	// buffer of 1 MiB, and clears it, at either end.
	maxPiece = maxData - 16
	// maxUnsent bounds the bytes that were written and not yet sent. All of them are
	// within the window, so that they leave as fast as gRPC takes them.
	maxUnsent = 2 * maxPiece
	// creditStep is how many bytes are read before they are credited to the peer.
	creditStep = window / 4
	// smallData is up to which size data is joined with what waits before it, so
	// that a peer that sends single bytes does not cost more than their number.
	smallData = 4 << 10
)

// The times of a connection, unless a Config says otherwise: two missed heartbeats
// would be too late for a peer that is lost to be found within 30 s.
const (
	DefaultHeartbeat = 15 * time.Second
	DefaultSilence   = 25 * time.Second
)

// stage is how far a stream has come. It only grows.
type stage uint8

const (
	stageSpare   stage = iota // nobody uses it
	stageOpening              // taken by a dial that has no answer yet
	stageOpen                 // a byte connection
)

// pace is the times of a connection.
type pace struct {
	heartbeat time.Duration // between two of ours
	silence   time.Duration // after which the peer is gone, or has not answered a close
}

// conn is one stream, and the net.Conn that it becomes when it is taken. What is
// to be sent is state, not a queue: a goroutine sends it whenever there is
// something, and an idle connection has none. All methods may be called from
// several goroutines at once.
type conn struct {
	side  stream.Side
	agent identity.AgentName
	id    string // in both logs
	pace  pace
	wire  wire
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

	writing sync.Mutex // held for all of a Write, whose bytes stay together

	mu       sync.Mutex // guards what follows
	readable sync.Cond
	writable sync.Cond
	stage    stage
	service  stream.Service
	answered chan struct{} // closed when stageOpening ends
	refusal  error         // at the hub, why it ended so that nothing is connected
	over     bool          // finished was called
	err      error         // for which it is over; nil: in good order

	// What has come.
	in     [][]byte
	grant  int   // bytes the peer may still send
	taken  int   // bytes read and not yet credited
	inEnd  error // what a read returns after in; nil: more may come
	inFin  bool
	heard  time.Time
	inbox  prometheus.Counter // bytes
	peer   bool               // the peer has closed
	local  bool               // we have: Close was called, or the stream given up
	closed chan struct{}      // closed with local

	// What is to be sent.
	sending  bool // a goroutine is at it
	hello    *chunk
	open     *chunk
	opened   *chunk
	credit   int // bytes to credit to the peer
	beat     bool
	out      []byte
	budget   int // bytes we may still take from a Write
	fin      progress
	bye      progress
	farewell Reason // of bye
	outbox   prometheus.Counter

	readBy, writeBy   deadline
	beats, ear, leave *time.Timer
}

// progress is that of a chunk that is sent once.
type progress uint8

const (
	notDue progress = iota
	due
	underway
	sent
)

// newConn returns a spare stream. Its clock runs; receive must be called.
func newConn(side stream.Side, agent identity.AgentName, id string, p pace, w wire, finished func(error)) *conn {
	c := &conn{
		side: side, agent: agent, id: id, pace: p, wire: w, finished: finished,
		grant: window, budget: window, heard: time.Now(),
		answered: make(chan struct{}), closed: make(chan struct{}),
	}
	c.readable.L, c.writable.L = &c.mu, &c.mu
	c.mu.Lock()
	defer c.mu.Unlock()
	c.beats = time.AfterFunc(rand.N(p.heartbeat)+1, c.tick) // not all of an agent at once
	c.ear = time.AfterFunc(p.silence, c.listen)
	return c
}

// tick sends a heartbeat.
func (c *conn) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.beat = true
	c.send()
	c.beats.Reset(c.pace.heartbeat)
}

// listen ends the stream when nothing came for too long.
func (c *conn) listen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	if left := c.pace.silence - time.Since(c.heard); left > 0 {
		c.ear.Reset(left)
		return
	}
	c.finish(fmt.Errorf("nothing came for %s: %w: %w", c.pace.silence, stream.ErrSilent, ErrLost))
}

// endReads sets what a read returns after what has come, unless that is set.
func (c *conn) endReads(err error) {
	if c.inEnd == nil {
		c.inEnd = err
	}
	c.readable.Broadcast()
}

// settle finishes the stream once both sides have closed. mu is held.
func (c *conn) settle() {
	if c.bye == sent && c.peer {
		c.finish(nil)
	}
}

// end finishes the stream for a failure.
func (c *conn) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finish(err)
}

// revoke finishes the stream for a failure after which nothing that it brought may
// be read.
func (c *conn) revoke(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.in = nil
	c.inEnd = err
	c.finish(err)
}

// finish is called with mu held.
func (c *conn) finish(err error) {
	if c.over {
		return
	}
	c.over, c.err = true, err
	c.endReads(cmp.Or(err, errGone))
	c.out = nil
	c.beats.Stop()
	c.ear.Stop()
	if c.leave != nil {
		c.leave.Stop()
	}
	if c.stage != stageOpen && c.side == stream.Hub {
		c.refusal = c.inEnd
		c.answer()
	}
	c.readable.Broadcast()
	c.writable.Broadcast()
	if err != nil {
		c.outgrown()
	}
	c.finished(err)
}

func (c *conn) outgrown() {
	if c.spent != nil {
		c.spent()
	}
}

// failure is why the stream is over; nil when it is not, or in good order.
func (c *conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// greet sends a hello with our proof.
func (c *conn) greet(p call.Proof) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hello = &chunk{kind: kindHello, agent: c.agent, connection: c.id, nonce: p.Nonce, proof: p.Token, proveAgain: p.ProveAgain}
	c.send()
}

// occupy takes a spare stream for a dial, and reports whether it is one still.
// waiting is how many more dials wait.
func (c *conn) occupy(service stream.Service, waiting int, inbox, outbox prometheus.Counter) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stage != stageSpare || c.peer || c.local || c.over {
		return false
	}
	c.stage, c.service, c.inbox, c.outbox = stageOpening, service, inbox, outbox
	c.open = &chunk{kind: kindOpen, service: service, waiting: waiting}
	c.send()
	return true
}

// outcome is what became of an occupied stream, once it is answered.
func (c *conn) outcome() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refusal
}

// answer ends stageOpening. mu is held.
func (c *conn) answer() {
	c.stage = stageOpen
	close(c.answered)
}

// accept tells the hub that the service is there, when the handler first uses the
// connection. mu is held.
func (c *conn) accept() {
	if c.side == stream.Spoke && c.stage == stageOpening && c.bye == notDue {
		c.opened = &chunk{kind: kindOpened}
		c.answer()
		c.send()
	}
}

// retire closes a stream that is spare, and reports whether it did: one that the hub has
// opened goes on.
func (c *conn) retire() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stage != stageSpare {
		return false
	}
	c.shut()
	return true
}

// abandon closes the spoke's end for a reason. A hub that waits for the answer is
// refused, and reads fail there else.
func (c *conn) abandon(r Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stage == stageOpening {
		c.opened = &chunk{kind: kindOpened, reason: r}
		c.answer()
	}
	if c.stage == stageOpen {
		c.farewell = r
	}
	c.shut()
}

// shut closes our end: what was written is still sent. mu is held.
func (c *conn) shut() {
	if c.local {
		return
	}
	c.local = true
	close(c.closed)
	c.in, c.taken = nil, 0
	c.readBy.clear()
	c.writeBy.clear()
	if c.bye == notDue {
		c.bye = due
	}
	c.readable.Broadcast()
	c.writable.Broadcast()
	c.outgrown()
	c.send()
}

// serving is the service the stream was taken for; zero while it is spare.
func (c *conn) serving() stream.Service {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.service
}

// accepted reports whether the hub was told that it is connected.
func (c *conn) accepted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stage == stageOpen
}

// measure sets where the bytes are counted.
func (c *conn) measure(inbox, outbox prometheus.Counter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inbox, c.outbox = inbox, outbox
}
