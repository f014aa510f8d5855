package tunnel

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Receive handles what comes until the stream ends.
func (c *Conn) Receive() {
	for {
		pb, err := c.wire.Recv()
		if err != nil {
			c.End(fmt.Errorf("%w: %w", ErrLost, err))
			return
		}
		if c.hooks.Spend != nil {
			c.hooks.Spend()
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
		c.hooks.Asked(ch.service, ch.waiting)
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
			c.ch.closeSent()
			if c.follow(); !c.ch.finished {
				c.timers.linger = time.AfterFunc(c.timing.Silence, func() { c.End(errLinger) })
			}
			return
		}
	}
}

// Unread bounds the bytes that have come on the streams of one peer and wait to be read. Each
// stream has its window; all of them together would be 256 MiB of a peer with 1,024 streams.
// It may be used by several goroutines at once.
type Unread struct {
	most     int64
	used     atomic.Int64
	common   *Common // nil where there is one peer
	bytes    prometheus.Gauge
	overruns prometheus.Counter
}

// Common bounds what the streams of all peers have together. Each peer may have free bytes
// whatever the others have. It may be used by several goroutines at once.
type Common struct {
	most, free int64
	used       atomic.Int64
}

// NewCommon returns a bound of most bytes, beside the free ones of each peer.
func NewCommon(most, free int64) *Common { return &Common{most: most, free: free} }

// Add counts bytes more, or less, and reports whether as many may be.
func (u *Unread) Add(bytes int) bool {
	n := int64(bytes)
	u.bytes.Add(float64(n))
	own := u.used.Add(n)
	within := own <= u.most
	if u.common != nil {
		all := u.common.used.Add(n)
		within = within && (own <= u.common.free || all <= u.common.most)
	}
	if within || n < 0 {
		return true
	}
	u.overruns.Inc()
	return false
}
