package tunnel

import (
	"fmt"
	"time"
)

// Receive handles what comes until the stream ends.
func (c *Conn) Receive() {
	for {
		pb, err := c.wire.Recv()
		if err != nil {
			c.End(fmt.Errorf("%w: %w", ErrLost, err))
			return
		}
		if c.Hooks.Spend != nil {
			c.Hooks.Spend()
		}
		ch, err := parse(pb)
		if err == nil {
			err = c.receive(ch)
		}
		if err != nil {
			c.End(err)
			return
		}
	}
}

// receive handles one chunk. Errors wrap a stream.Violation.
func (c *Conn) receive(ch chunk) error {
	c.mu.Lock()
	c.lastReceived = time.Now()
	ask, err := c.ch.receive(ch)
	if err == nil && ch.kind == kindData {
		c.bytes.add(c.bytes.in, len(ch.data))
	}
	c.follow()
	c.mu.Unlock()
	if ask {
		c.Hooks.Asked(ch.service, ch.waiting)
	}
	return err
}

// send starts a goroutine that sends what is to be sent, if there is none. mu is
// held.
func (c *Conn) send() {
	if !c.sending && c.ch.pending() {
		c.sending = true
		go c.flush()
	}
}

// flush sends all that is to be sent.
func (c *Conn) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.sending = false }()
	for c.ch.pending() {
		next := c.ch.next()
		if next.kind == kindData {
			c.bytes.add(c.bytes.out, len(next.data))
		}
		c.follow()
		c.mu.Unlock()
		err := c.wire.Send(next.wire())
		c.mu.Lock()
		if err != nil {
			return // the goroutine that receives has the reason
		}
		if next.kind == kindClose {
			c.ch.saidBye()
			if c.follow(); !c.ch.finished {
				c.timers.linger = time.AfterFunc(c.timing.Silence, func() { c.End(errLinger) })
			}
			return
		}
	}
}
