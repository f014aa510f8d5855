//go:build linux

package main

import (
	"io"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/argomesh/argomesh/stream/streampb"
)

const (
	// window is how many bytes each side may have said that the other has not read.
	window = 256 << 10
	// piece is the most that one chunk has.
	piece = 32 << 10
)

// talk is what an attack says on a stream for live access: first once, and then again
// until the other side ends it. With neither it hears what is said, and is silent.
type talk struct {
	name, first, again string
}

// pipe is a stream for live access that was taken. Unlike what breaks the protocol it says
// as much as the window lets through, so that anyone who is behind hears it all.
type pipe struct {
	l *line
	// deaf says that what is heard is not given back.
	deaf  bool
	woken chan struct{} // has a value when what follows may have changed

	mu     sync.Mutex // guards what follows
	room   int        // bytes that we may say
	owed   int        // bytes that we heard and have not given back
	heard  bool       // something
	opened bool       // the other side has reached what it was asked for
	err    error      // how it ended
}

func newPipe(l *line) *pipe {
	p := &pipe{l: l, room: window, woken: make(chan struct{}, 1)}
	go p.hear()
	return p
}

// hear takes what comes until it ends.
func (p *pipe) hear() {
	for {
		c, err := hearChunk(p.l.stream)
		if err == nil {
			p.l.done.answered(p.l.attack)
			if c.GetClose() != nil {
				err = io.EOF
			}
		}
		p.mu.Lock()
		p.err = err
		p.opened = p.opened || c.GetOpened() != nil
		p.heard = p.heard || len(c.GetData()) > 0
		p.owed += len(c.GetData())
		p.room += int(c.GetCredit())
		p.mu.Unlock()
		select {
		case p.woken <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// await gives back what is heard until there is what is waited for, or the end. ready is
// called with mu held.
func (p *pipe) await(ready func() bool) error {
	for {
		p.mu.Lock()
		is, owed, err := ready(), p.owed, p.err
		if !p.deaf {
			p.owed = 0
		}
		p.mu.Unlock()
		switch {
		case err != nil:
			return err
		case owed > 0 && !p.deaf:
			if err := p.l.prepare(&streampb.Chunk{Body: &streampb.Chunk_Credit{Credit: uint32(owed)}}); err != nil { //nolint:gosec // at most window
				return err
			}
			continue
		case is:
			return nil
		}
		select {
		case <-p.woken:
		case <-p.l.ctx.Done():
			return p.l.ctx.Err()
		}
	}
}

// talk does so until the other side ends it, or the attack is over.
func (p *pipe) talk(t talk) error {
	if t.first == "" && t.again == "" {
		if err := p.await(func() bool { return p.heard }); err != nil {
			return err
		}
		p.l.done.sent(p.l.attack, 0)
	}
	if err := p.say([]byte(t.first)); err != nil {
		return err
	}
	for again := []byte(t.again); len(again) > 0; {
		if err := p.say(again); err != nil {
			return err
		}
	}
	return p.await(func() bool { return false })
}

// say says bytes as soon as the other side has room for them.
func (p *pipe) say(b []byte) error {
	for len(b) > 0 {
		n := 0
		if err := p.await(func() bool {
			n = min(p.room, len(b), piece)
			p.room -= n
			return n > 0
		}); err != nil {
			return err
		}
		if err := p.l.send(&streampb.Chunk{Body: &streampb.Chunk_Data{Data: b[:n]}}); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func hearChunk(from messages) (*streampb.Chunk, error) {
	var b []byte
	if err := from.RecvMsg(&b); err != nil {
		return nil, err
	}
	c := &streampb.Chunk{}
	return c, proto.Unmarshal(b, c)
}
