package tunnel

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

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

// stage is how far a stream has come. It only grows.
type stage uint8

const (
	stageSpare   stage = iota // no one uses it
	stageOpening              // taken by a dial that has no answer yet
	stageOpen                 // a byte connection
)

// progress is that of a chunk that is sent once.
type progress uint8

const (
	notDue progress = iota
	due
	underway
	sent
)

// channel is the state of one stream at one end: what has come, what is to be sent, and
// what either end has said. It has no lock, clock, socket or goroutine. What is to be sent
// is state, not a queue. After each call, effects says what follows for others.
type channel struct {
	side           stream.Side
	agent          identity.AgentName
	id             string // in both logs
	service        stream.Service
	stage          stage
	refusal        error // at the hub, why stageOpening ended so that nothing is connected
	finished       bool  // nothing more is sent or received
	err            error // for which it is over; nil: in good order
	peer           bool  // the peer has closed
	local          bool  // we have: Close was called, or the stream given up
	in             received
	out            unsent
	pendingEffects effects
}

// received is what has come.
type received struct {
	data       [][]byte
	size       int   // bytes of data
	grant      int   // bytes the peer may still send
	uncredited int   // bytes read and not yet credited
	end        error // what a read returns after data; nil: more may come
	fin        bool  // the peer sends no more
}

// unsent is what is to be sent.
type unsent struct {
	hello       *chunk
	open        *chunk
	opened      *chunk
	credit      int // bytes to credit to the peer
	beat        bool
	data        []byte
	budget      int // bytes we may still take from a write
	fin         progress
	closeState  progress
	closeReason Reason // of bye
}

// effects are what follows from calls for others, until follow has done it.
type effects struct {
	readers, writers bool // who waits is to check again
	answered         bool // stageOpening has ended
	closed           bool // our end was closed
	done             bool // the stream is of no more use at this end
	finished         bool // it is over
}

func newChannel(side stream.Side, agent identity.AgentName, id string) channel {
	return channel{side: side, agent: agent, id: id, in: received{grant: window}, out: unsent{budget: window}}
}

// receive takes one chunk. It reports whether a connection to a service is asked for. Errors
// wrap a stream.Violation.
func (c *channel) receive(ch chunk) (ask bool, err error) {
	switch ch.kind {
	case kindHeartbeat:
	case kindOpened:
		return false, c.receiveOpened(ch)
	case kindData:
		return false, c.receiveData(ch.data)
	case kindCredit:
		if c.stage != stageOpen || c.peer {
			return false, outOfOrder("credit")
		}
		if c.out.budget += ch.credit; c.out.budget > window {
			return false, fmt.Errorf("credit for more than was sent: %w", stream.ViolationLimit.Err())
		}
		c.pendingEffects.writers = true
	case kindFin:
		if c.stage != stageOpen || c.in.fin || c.peer {
			return false, outOfOrder("fin")
		}
		c.in.fin = true
		c.endReads(io.EOF)
	case kindClose:
		return false, c.receiveClose(ch)
	case kindHello:
		return false, outOfOrder("hello")
	case kindOpen:
		return c.receiveOpen(ch)
	}
	return false, nil
}

func outOfOrder(what string) error {
	return fmt.Errorf("%s at this moment: %w", what, stream.ViolationOrder.Err())
}

func (c *channel) receiveOpen(ch chunk) (ask bool, err error) {
	switch {
	case c.side == stream.Hub:
		return false, fmt.Errorf("open from an agent: %w", stream.ViolationDirection.Err())
	case c.stage != stageSpare || c.peer:
		return false, outOfOrder("open")
	}
	c.stage, c.service = stageOpening, ch.service
	return !c.local, nil // it may have crossed our close, and will be dialled again
}

func (c *channel) receiveOpened(ch chunk) error {
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

func (c *channel) receiveData(data []byte) error {
	if c.stage != stageOpen || c.in.fin || c.peer {
		return outOfOrder("data")
	}
	if c.in.grant -= len(data); c.in.grant < 0 {
		return fmt.Errorf("data beyond the window: %w", stream.ViolationLimit.Err())
	}
	if c.local {
		return nil // no one reads it
	}
	c.in.size += len(data)
	if last := len(c.in.data) - 1; last >= 0 && len(data) < smallData && len(c.in.data[last])+len(data) <= maxData {
		c.in.data[last] = append(c.in.data[last], data...)
	} else {
		c.in.data = append(c.in.data, data)
	}
	c.pendingEffects.readers = true
	return nil
}

func (c *channel) receiveClose(ch chunk) error {
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
		c.endReads(ErrIdleClosed)
		c.pendingEffects.done = true
	}
	c.out.data = nil // no one reads it
	if c.out.closeState == notDue {
		c.out.closeState = due
	}
	c.pendingEffects.writers = true
	c.finishIfClosed()
	return nil
}

// endReads sets what a read returns after what has come, unless that is set.
func (c *channel) endReads(err error) {
	if c.in.end == nil {
		c.in.end = err
	}
	c.pendingEffects.readers = true
}

// finishIfClosed finishes the stream once both sides have closed.
func (c *channel) finishIfClosed() {
	if c.out.closeState == sent && c.peer {
		c.finish(nil)
	}
}

// finish ends the stream for a failure, or in good order for nil.
func (c *channel) finish(err error) {
	if c.finished {
		return
	}
	c.finished, c.err = true, err
	c.endReads(cmp.Or(err, errGone))
	c.out.data = nil
	if c.stage != stageOpen && c.side == stream.Hub {
		c.refusal = c.in.end
		c.answer()
	}
	c.pendingEffects.readers, c.pendingEffects.writers, c.pendingEffects.finished = true, true, true
	c.pendingEffects.done = c.pendingEffects.done || err != nil
}

// revoke finishes the stream for a failure after which nothing that it brought may
// be read.
func (c *channel) revoke(err error) {
	c.in.data, c.in.size, c.in.end = nil, 0, err
	c.finish(err)
}

// overrun ends the stream since more waits to be read than may, of all streams of the peer.
func (c *channel) overrun() {
	if c.side == stream.Spoke {
		c.closeWith(ReasonBusy)
		return
	}
	c.revoke(errOverrun)
}

// acquire takes a spare stream for a dial, and reports whether it is one still.
// waiting is how many more dials wait.
func (c *channel) acquire(service stream.Service, waiting int) bool {
	if c.stage != stageSpare || c.peer || c.local || c.finished {
		return false
	}
	c.stage, c.service = stageOpening, service
	c.out.open = &chunk{kind: kindOpen, service: service, waiting: waiting}
	return true
}

// answer ends stageOpening.
func (c *channel) answer() {
	c.stage, c.pendingEffects.answered = stageOpen, true
}

// accept tells the hub that the service is there, when the handler first uses the
// connection.
func (c *channel) accept() {
	if c.side == stream.Spoke && c.stage == stageOpening && c.out.closeState == notDue {
		c.out.opened = &chunk{kind: kindOpened}
		c.answer()
	}
}

// closeIdle closes a stream that is spare, and reports whether it did: one that the hub has
// opened goes on.
func (c *channel) closeIdle() bool {
	if c.stage != stageSpare {
		return false
	}
	c.shut()
	return true
}

// closeWith closes the spoke's end for a reason. A hub that waits for the answer is
// refused, and reads fail there else.
func (c *channel) closeWith(r Reason) {
	if c.stage == stageOpening {
		c.out.opened = &chunk{kind: kindOpened, reason: r}
		c.answer()
	}
	if c.stage == stageOpen {
		c.out.closeReason = r
	}
	c.shut()
}

// shut closes our end: what was written is still sent.
func (c *channel) shut() {
	if c.local {
		return
	}
	c.local = true
	c.in.data, c.in.size, c.in.uncredited = nil, 0, 0
	if c.out.closeState == notDue {
		c.out.closeState = due
	}
	c.pendingEffects.readers, c.pendingEffects.writers, c.pendingEffects.closed, c.pendingEffects.done = true, true, true,
		true
}

// finWrites tells the peer that no more comes.
func (c *channel) finWrites() error {
	switch {
	case c.local:
		return c.opError("close", net.ErrClosed)
	case c.finished && c.err != nil:
		return c.opError("close", c.err)
	}
	if c.out.fin == notDue && !c.peer {
		c.out.fin, c.pendingEffects.writers = due, true
	}
	return nil
}

// read takes from what has come. done is false while there is nothing to say; passed says
// that the deadline of reads is over. The error is io.EOF only when the peer has said that
// it sends no more.
func (c *channel) read(b []byte, passed bool) (n int, done bool, err error) {
	switch {
	case c.local:
		return 0, true, c.opError("read", net.ErrClosed)
	case passed:
		return 0, true, c.opError("read", os.ErrDeadlineExceeded)
	case len(b) == 0:
		return 0, true, nil
	case len(c.in.data) > 0:
		return c.consume(b), true, nil
	case errors.Is(c.in.end, io.EOF):
		c.pendingEffects.done = c.pendingEffects.done || c.peer // nothing to read, and no one to write to
		return 0, true, io.EOF
	case c.in.end != nil:
		return 0, true, c.opError("read", c.in.end)
	}
	return 0, false, nil
}

// consume copies what has come, and credits it to the peer.
func (c *channel) consume(b []byte) (n int) {
	in := &c.in
	for len(in.data) > 0 && n < len(b) {
		copied := copy(b[n:], in.data[0])
		n += copied
		if in.data[0] = in.data[0][copied:]; len(in.data[0]) == 0 {
			in.data[0] = nil
			if in.data = in.data[1:]; len(in.data) == 0 {
				in.data = nil
			}
		}
	}
	in.size -= n
	if in.uncredited += n; in.uncredited >= creditStep && !in.fin && !c.peer && c.out.closeState == notDue {
		c.out.credit += in.uncredited
		in.grant += in.uncredited
		in.uncredited = 0
	}
	return n
}

// write takes as much of b as may be sent. done is false while there is more of it, and
// passed says that the deadline of writes is over.
func (c *channel) write(b []byte, passed bool) (n int, done bool, err error) {
	switch {
	case c.local:
		return 0, true, c.opError("write", net.ErrClosed)
	case c.out.fin != notDue:
		return 0, true, c.opError("write", errFinished)
	case c.finished && c.err != nil:
		return 0, true, c.opError("write", c.err)
	case c.peer && !errors.Is(c.in.end, io.EOF):
		return 0, true, c.opError("write", c.in.end)
	case c.peer:
		return 0, true, c.opError("write", errGone)
	case passed:
		return 0, true, c.opError("write", os.ErrDeadlineExceeded)
	case len(b) == 0:
		return 0, true, nil
	}
	room := min(len(b), c.out.budget, maxUnsent-len(c.out.data))
	if room <= 0 {
		return 0, false, nil
	}
	c.out.data = append(c.out.data, b[:room]...)
	c.out.budget -= room
	return room, false, nil
}

// pending reports whether something is to be sent.
func (c *channel) pending() bool {
	out := &c.out
	if c.finished || out.closeState > due {
		return false // a close is the last
	}
	return out.hello != nil || out.open != nil || out.opened != nil || out.credit > 0 || out.beat || len(out.data) > 0 ||
		out.fin == due || out.closeState == due
}

// next returns the chunk to be sent first, of those that are pending.
func (c *channel) next() chunk {
	out := &c.out
	for _, once := range []**chunk{&out.hello, &out.open, &out.opened} {
		if *once != nil {
			next := **once
			*once = nil
			return next
		}
	}
	switch {
	case out.credit > 0:
		next := chunk{kind: kindCredit, credit: out.credit}
		out.credit = 0
		return next
	case out.beat:
		out.beat = false
		return chunk{kind: kindHeartbeat}
	case len(out.data) > 0:
		n := min(len(out.data), maxPiece)
		next := chunk{kind: kindData, data: out.data[:n:n]}
		// What is sent stays with gRPC's message, whose buffer is not ours to use again.
		if out.data = out.data[n:]; len(out.data) == 0 {
			out.data = nil
		}
		c.pendingEffects.writers = true
		return next
	case out.fin == due:
		out.fin = sent
		return chunk{kind: kindFin}
	}
	out.closeState = underway
	return chunk{kind: kindClose, reason: out.closeReason}
}

// closeSent records that our close was sent.
func (c *channel) closeSent() {
	c.out.closeState = sent
	c.finishIfClosed()
}

// spoke is the address of the spoke's end.
func (c *channel) spoke() address {
	return address(c.agent.String() + "/" + c.service.String() + "#" + c.id)
}

// opError says which connection an error is of.
func (c *channel) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tunnel", Addr: c.spoke(), Err: err}
}

// address is that of one end of a tunnel.
type address string

func (address) Network() string { return "tunnel" }

func (a address) String() string { return string(a) }
