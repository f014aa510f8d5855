package tunnel

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
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
	c.finish(fmt.Errorf("nothing came for %s: %w", c.pace.silence, ErrLost))
}

// receive handles what comes until the stream ends.
func (c *conn) receive() {
	for {
		pb, err := c.wire.Recv()
		if err != nil {
			c.end(fmt.Errorf("%w: %w", ErrLost, err))
			return
		}
		ch, err := parse(pb)
		if err == nil {
			err = c.take(ch)
		}
		if err != nil {
			c.end(err)
			return
		}
	}
}

// take handles one chunk. Errors wrap a stream.Violation.
func (c *conn) take(ch chunk) error {
	if ch.kind == kindOpen && c.side == stream.Spoke {
		ask, err := c.takeOpen(ch)
		if ask {
			c.asked(ch.service, ch.waiting)
		}
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = time.Now()
	switch ch.kind {
	case kindHeartbeat:
	case kindOpened:
		return c.takeOpened(ch)
	case kindData:
		return c.takeData(ch.data)
	case kindCredit:
		if c.stage != stageOpen || c.peer {
			return outOfOrder("credit")
		}
		if c.budget += ch.credit; c.budget > window {
			return fmt.Errorf("credit for more than was sent: %w", stream.ViolationLimit.Err())
		}
		c.writable.Broadcast()
	case kindFin:
		if c.stage != stageOpen || c.inFin || c.peer {
			return outOfOrder("fin")
		}
		c.inFin = true
		c.endReads(io.EOF)
	case kindClose:
		return c.takeClose(ch)
	case kindHello:
		return outOfOrder("hello")
	case kindOpen:
		return fmt.Errorf("open from an agent: %w", stream.ViolationDirection.Err())
	}
	return nil
}

func outOfOrder(what string) error {
	return fmt.Errorf("%s at this moment: %w", what, stream.ViolationOrder.Err())
}

// takeOpen reports whether a connection to a service is asked for.
func (c *conn) takeOpen(ch chunk) (ask bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = time.Now()
	if c.stage != stageSpare || c.peer {
		return false, outOfOrder("open")
	}
	c.stage, c.service = stageOpening, ch.service
	return !c.local, nil // it may have crossed our close, and will be dialled anew
}

func (c *conn) takeOpened(ch chunk) error {
	switch {
	case c.side == stream.Spoke:
		return fmt.Errorf("opened from a principal: %w", stream.ViolationDirection.Err())
	case c.stage != stageOpening || c.peer:
		return outOfOrder("opened")
	}
	if ch.reason != "" {
		c.refusal = &ServiceError{Agent: c.agent, Service: c.service, Reason: ch.reason}
		c.endReads(c.refusal)
	}
	c.answer()
	return nil
}

func (c *conn) takeData(data []byte) error {
	if c.stage != stageOpen || c.inFin || c.peer {
		return outOfOrder("data")
	}
	if c.grant -= len(data); c.grant < 0 {
		return fmt.Errorf("data beyond the window: %w", stream.ViolationLimit.Err())
	}
	if c.inbox != nil {
		c.inbox.Add(float64(len(data)))
	}
	if c.local {
		return nil // nobody reads it
	}
	if last := len(c.in) - 1; last >= 0 && len(data) < smallData && len(c.in[last])+len(data) <= maxData {
		c.in[last] = append(c.in[last], data...)
	} else {
		c.in = append(c.in, data)
	}
	c.readable.Broadcast()
	return nil
}

func (c *conn) takeClose(ch chunk) error {
	if c.peer {
		return outOfOrder("close")
	}
	c.peer = true
	switch {
	case ch.reason != "":
		c.endReads(&ServiceError{Agent: c.agent, Service: c.service, Reason: ch.reason})
	case c.stage == stageOpen:
		c.endReads(io.EOF)
	default:
		c.endReads(errRetired)
		c.outgrown()
	}
	c.out = nil // nobody reads it
	if c.bye == notDue {
		c.bye = due
	}
	c.writable.Broadcast()
	c.send()
	c.settle()
	return nil
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

// send starts a goroutine that sends what is to be sent, if there is none. mu is
// held.
func (c *conn) send() {
	if !c.sending && !c.over && c.pending() {
		c.sending = true
		go c.flush()
	}
}

func (c *conn) pending() bool {
	if c.bye > due {
		return false // a close is the last
	}
	return c.hello != nil || c.open != nil || c.opened != nil || c.credit > 0 || c.beat || len(c.out) > 0 || c.fin == due || c.bye == due
}

// flush sends all that is to be sent.
func (c *conn) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.sending = false }()
	for !c.over && c.pending() {
		next := c.next()
		c.mu.Unlock()
		err := c.wire.Send(next.wire())
		c.mu.Lock()
		if err != nil {
			return // the goroutine that receives has the reason
		}
		if next.kind == kindClose {
			c.bye = sent
			if c.settle(); !c.over {
				c.leave = time.AfterFunc(c.pace.silence, func() { c.end(errLinger) })
			}
			return
		}
	}
}

// next returns the chunk to be sent first, of those that are pending.
func (c *conn) next() chunk {
	switch {
	case c.hello != nil:
		next := *c.hello
		c.hello = nil
		return next
	case c.open != nil:
		next := *c.open
		c.open = nil
		return next
	case c.opened != nil:
		next := *c.opened
		c.opened = nil
		return next
	case c.credit > 0:
		next := chunk{kind: kindCredit, credit: c.credit}
		c.credit = 0
		return next
	case c.beat:
		c.beat = false
		return chunk{kind: kindHeartbeat}
	case len(c.out) > 0:
		n := min(len(c.out), maxPiece)
		next := chunk{kind: kindData, data: c.out[:n:n]}
		// What is sent stays with gRPC's message, whose buffer is not ours to use again.
		if c.out = c.out[n:]; len(c.out) == 0 {
			c.out = nil
		}
		if c.outbox != nil {
			c.outbox.Add(float64(n))
		}
		c.writable.Broadcast()
		return next
	case c.fin == due:
		c.fin = sent
		return chunk{kind: kindFin}
	}
	c.bye = underway
	return chunk{kind: kindClose, reason: c.farewell}
}

// Read implements net.Conn. Its error is io.EOF only when the peer has said that it
// sends no more.
func (c *conn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accept()
	for {
		switch {
		case c.local:
			return 0, c.opError("read", net.ErrClosed)
		case c.readBy.passed:
			return 0, c.opError("read", os.ErrDeadlineExceeded)
		case len(b) == 0:
			return 0, nil
		case len(c.in) > 0:
			return c.read(b), nil
		case errors.Is(c.inEnd, io.EOF):
			if c.peer {
				c.outgrown() // nothing to read, and nobody to write to
			}
			return 0, io.EOF
		case c.inEnd != nil:
			return 0, c.opError("read", c.inEnd)
		}
		c.readable.Wait()
	}
}

// read takes from what has come. mu is held.
func (c *conn) read(b []byte) (n int) {
	for len(c.in) > 0 && n < len(b) {
		copied := copy(b[n:], c.in[0])
		n += copied
		if c.in[0] = c.in[0][copied:]; len(c.in[0]) == 0 {
			c.in[0] = nil
			if c.in = c.in[1:]; len(c.in) == 0 {
				c.in = nil
			}
		}
	}
	if c.taken += n; c.taken >= creditStep && !c.inFin && !c.peer && c.bye == notDue {
		c.credit += c.taken
		c.grant += c.taken
		c.taken = 0
		c.send()
	}
	return n
}

// Write implements net.Conn. It returns when all of b is on its way, and blocks
// while the peer does not read.
func (c *conn) Write(b []byte) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accept()
	for {
		switch {
		case c.local:
			return n, c.opError("write", net.ErrClosed)
		case c.fin != notDue:
			return n, c.opError("write", errFinished)
		case c.over && c.err != nil:
			return n, c.opError("write", c.err)
		case c.peer && !errors.Is(c.inEnd, io.EOF):
			return n, c.opError("write", c.inEnd)
		case c.peer:
			return n, c.opError("write", errGone)
		case c.writeBy.passed:
			return n, c.opError("write", os.ErrDeadlineExceeded)
		case n == len(b):
			return n, nil
		}
		room := min(len(b)-n, c.budget, maxUnsent-len(c.out))
		if room <= 0 {
			c.writable.Wait()
			continue
		}
		c.out = append(c.out, b[n:n+room]...)
		c.budget -= room
		n += room
		c.send()
	}
}

// CloseWrite tells the peer that no more comes. Reads go on.
func (c *conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accept()
	switch {
	case c.local:
		return c.opError("close", net.ErrClosed)
	case c.over && c.err != nil:
		return c.opError("close", c.err)
	}
	if c.fin == notDue && !c.peer {
		c.fin = due
		c.writable.Broadcast()
		c.send()
	}
	return nil
}

// Close implements net.Conn. What was written still goes to the peer. It does not
// block, and may be called again.
func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accept()
	c.shut()
	return nil
}

// address is that of one end of a tunnel.
type address string

func (address) Network() string  { return "tunnel" }
func (a address) String() string { return string(a) }

// LocalAddr implements net.Conn. It names the connection, by its id in both logs.
func (c *conn) LocalAddr() net.Addr {
	if c.side == stream.Hub {
		return address("principal#" + c.id)
	}
	return c.spoke()
}

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr {
	if c.side == stream.Hub {
		return c.spoke()
	}
	return address("principal#" + c.id)
}

func (c *conn) spoke() net.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spokeHeld()
}

func (c *conn) spokeHeld() net.Addr {
	return address(c.agent.String() + "/" + c.service.String() + "#" + c.id)
}

// opError says which connection an error is of. mu is held.
func (c *conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tunnel", Addr: c.spokeHeld(), Err: err}
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.readBy, &c.readable, t) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.writeBy, &c.writable, t) }

func (c *conn) setDeadline(d *deadline, waiting *sync.Cond, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.local {
		return c.opError("set", net.ErrClosed)
	}
	d.clear()
	if t.IsZero() {
		return nil
	}
	left := time.Until(t)
	if left <= 0 {
		d.passed = true
		waiting.Broadcast()
		return nil
	}
	var timer *time.Timer
	timer = time.AfterFunc(left, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if d.timer == timer { // else it was set anew
			d.passed = true
			waiting.Broadcast()
		}
	})
	d.timer = timer
	return nil
}

// deadline is that of reads or of writes.
type deadline struct {
	timer  *time.Timer // nil: none
	passed bool
}

func (d *deadline) clear() {
	if d.timer != nil {
		d.timer.Stop()
	}
	*d = deadline{}
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
