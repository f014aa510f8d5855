package tunnel

import (
	"fmt"
	"io"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// receive handles what comes until the stream ends.
func (c *conn) receive() {
	for {
		pb, err := c.wire.Recv()
		if err != nil {
			c.end(fmt.Errorf("%w: %w", ErrLost, err))
			return
		}
		if c.spend != nil {
			c.spend()
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
