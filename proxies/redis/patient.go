package redis

import (
	"net"
	"os"
	"sync/atomic"
	"time"
)

// patient is a connection each of whose reads and writes has a time of its own. Zero
// is no limit. Its fields are changed by who reads, or writes.
type patient struct {
	net.Conn
	read, write time.Duration
	interrupted atomic.Bool
}

// interrupt ends reads and writes, those under way and all later ones.
func (p *patient) interrupt() {
	p.interrupted.Store(true)
	_ = p.SetDeadline(past) // a connection that has none is closed
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

func (p *patient) Read(b []byte) (int, error) {
	if p.read > 0 {
		if err := p.SetReadDeadline(time.Now().Add(p.read)); err != nil {
			return 0, err
		}
	}
	if p.interrupted.Load() { // else interrupt comes after, and its deadline lasts
		return 0, os.ErrDeadlineExceeded
	}
	return p.Conn.Read(b)
}

func (p *patient) Write(b []byte) (int, error) {
	if p.write > 0 {
		if err := p.SetWriteDeadline(time.Now().Add(p.write)); err != nil {
			return 0, err
		}
	}
	if p.interrupted.Load() { // as above
		return 0, os.ErrDeadlineExceeded
	}
	return p.Conn.Write(b)
}
