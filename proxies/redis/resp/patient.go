package resp

import (
	"net"
	"os"
	"sync/atomic"
	"time"
)

// Patient is a connection each of whose reads and writes has a time of its own. Zero
// is no limit. Its fields are changed by who reads, or writes.
type Patient struct {
	net.Conn
	ReadTime, WriteTime time.Duration
	interrupted         atomic.Bool
}

// Interrupt ends reads and writes, those under way and all later ones.
func (p *Patient) Interrupt() {
	p.interrupted.Store(true)
	_ = p.SetDeadline(past) // a connection that has none is closed
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

func (p *Patient) Read(b []byte) (int, error) {
	if p.ReadTime > 0 {
		if err := p.SetReadDeadline(time.Now().Add(p.ReadTime)); err != nil {
			return 0, err
		}
	}
	if p.interrupted.Load() { // else interrupt comes after, and its deadline lasts
		return 0, os.ErrDeadlineExceeded
	}
	return p.Conn.Read(b)
}

func (p *Patient) Write(b []byte) (int, error) {
	if p.WriteTime > 0 {
		if err := p.SetWriteDeadline(time.Now().Add(p.WriteTime)); err != nil {
			return 0, err
		}
	}
	if p.interrupted.Load() { // as above
		return 0, os.ErrDeadlineExceeded
	}
	return p.Conn.Write(b)
}
