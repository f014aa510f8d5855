package tunnel

import (
	"net"
	"sync"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// Read implements net.Conn. Its error is io.EOF only when the peer has said that it
// sends no more.
func (c *Conn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ch.accept()
	for {
		n, done, err := c.ch.read(b, c.readBy.passed)
		if c.follow(); done {
			return n, err
		}
		c.readable.Wait()
	}
}

// Write implements net.Conn. It returns when all of b is on its way, and blocks
// while the peer does not read.
func (c *Conn) Write(b []byte) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ch.accept()
	for {
		wrote, done, err := c.ch.write(b[n:], c.writeBy.passed)
		n += wrote
		if c.follow(); done {
			return n, err
		}
		if wrote == 0 {
			c.writable.Wait()
		}
	}
}

// CloseWrite tells the peer that no more comes. Reads go on.
func (c *Conn) CloseWrite() (err error) {
	c.locked(func(ch *channel) {
		ch.accept()
		err = ch.finWrites()
	})
	return err
}

// Close implements net.Conn. What was written still goes to the peer. It does not
// block, and may be called again.
func (c *Conn) Close() error {
	c.locked(func(ch *channel) {
		ch.accept()
		ch.shut()
	})
	return nil
}

// LocalAddr implements net.Conn. It names the connection, by its id in both logs.
func (c *Conn) LocalAddr() net.Addr { return c.address(stream.Hub) }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.address(stream.Spoke) }

// address is that of our end for our side's, and else of the other end.
func (c *Conn) address(hubOn stream.Side) net.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ch.side == hubOn {
		return address("principal#" + c.ch.id)
	}
	return c.ch.spoke()
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.readBy, &c.readable, t) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.writeBy, &c.writable, t) }

func (c *Conn) setDeadline(d *deadline, waiting *sync.Cond, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ch.local {
		return c.ch.opError("set", net.ErrClosed)
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
		if d.timer == timer { // else it was set again
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
