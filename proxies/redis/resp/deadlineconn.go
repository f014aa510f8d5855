package resp

import (
	"net"
	"os"
	"sync/atomic"
	"time"
)

// DeadlineConn is a connection each of whose reads and writes has a deadline of its own. Zero
// is no limit. Its fields are changed by who reads, or writes.
type DeadlineConn struct {
	net.Conn
	ReadTime, WriteTime time.Duration
	interrupted         atomic.Bool
}

// Interrupt ends reads and writes, those under way and all later ones.
func (c *DeadlineConn) Interrupt() {
	c.interrupted.Store(true)
	_ = c.SetDeadline(expired) // a connection that has none is closed
}

// expired is a deadline that has passed.
var expired = time.Unix(1, 0)

func (c *DeadlineConn) Read(b []byte) (int, error) {
	if c.ReadTime > 0 {
		if err := c.SetReadDeadline(time.Now().Add(c.ReadTime)); err != nil {
			return 0, err
		}
	}
	if c.interrupted.Load() { // else interrupt comes after, and its deadline lasts
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Read(b)
}

func (c *DeadlineConn) Write(b []byte) (int, error) {
	if c.WriteTime > 0 {
		if err := c.SetWriteDeadline(time.Now().Add(c.WriteTime)); err != nil {
			return 0, err
		}
	}
	if c.interrupted.Load() { // as above
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Write(b)
}
