package tunnel

import (
	"fmt"
	"time"
)

// receive handles what comes until the stream ends.
func (c *conn) receive() {
	for {
		pb, err := c.wire.Recv()
		if err != nil {
			c.end(fmt.Errorf("%w: %w", ErrLost, err))
			return
		}
		if c.hooks.spend != nil {
			c.hooks.spend()
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
	c.mu.Lock()
	c.heard = time.Now()
	ask, err := c.ch.take(ch)
	if err == nil && ch.kind == kindData {
		c.bytes.add(c.bytes.in, len(ch.data))
	}
	c.follow()
	c.mu.Unlock()
	if ask {
		c.hooks.asked(ch.service, ch.waiting)
	}
	return err
}

// send starts a goroutine that sends what is to be sent, if there is none. mu is
// held.
func (c *conn) send() {
	if !c.sending && c.ch.pending() {
		c.sending = true
		go c.flush()
	}
}

// flush sends all that is to be sent.
func (c *conn) flush() {
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
			if c.follow(); !c.ch.over {
				c.timers.linger = time.AfterFunc(c.pace.silence, func() { c.end(errLinger) })
			}
			return
		}
	}
}
