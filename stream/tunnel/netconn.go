package tunnel

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/argomesh/argomesh/stream"
)

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

func (address) Network() string { return "tunnel" }

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
