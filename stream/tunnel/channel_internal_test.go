package tunnel

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/argomesh/argomesh/stream"
)

// pipe are the channels of both ends, and what went between them.
type pipe struct {
	t     *testing.T
	ends  [2]*channel
	wrote [2][]byte // by this end
	read  [2][]byte // by this end
}

// pass moves one chunk from an end to the other, if there is one.
func (p *pipe) pass(from int) bool {
	p.t.Helper()
	c := p.ends[from]
	if !c.pending() {
		return false
	}
	next, err := parse(c.next().wire())
	if err != nil {
		p.t.Fatal(err)
	}
	if next.kind == kindClose {
		c.closeSent()
	}
	to := p.ends[1-from]
	if to.finished {
		return true
	}
	if _, err := to.receive(next); err != nil {
		p.t.Fatalf("%v takes %v: %v", to.side, next.kind, err)
	}
	to.accept()
	return true
}

func (p *pipe) readAt(end int, most int) {
	p.t.Helper()
	b := make([]byte, most)
	n, done, err := p.ends[end].read(b, false)
	p.read[end] = append(p.read[end], b[:n]...)
	if done && err != nil && !errors.Is(err, io.EOF) && !p.ends[end].local {
		p.t.Fatalf("%v reads: %v", p.ends[end].side, err)
	}
}

// Two ends that keep to the protocol agree, in whatever order they are called and their
// chunks pass: neither breaks it, what is read is what was written, and the stream is over
// in good order once both have closed.
func TestChannelsAgree(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		hub, spoke := newChannel(stream.Hub, edge1(t), "id"), newChannel(stream.Spoke, edge1(t), "id")
		p := &pipe{t: t, ends: [2]*channel{&hub, &spoke}}
		if !hub.acquire(stream.Redis, 0) {
			t.Fatal("a new stream cannot be occupied")
		}
		for step := range 400 {
			end := r.IntN(2)
			switch op := r.IntN(20); {
			case op < 8:
				p.pass(end)
			case op < 13 && p.ends[end].stage == stageOpen:
				b := bytes.Repeat([]byte{byte(step)}, 1+r.IntN(1<<(1+r.IntN(16))))
				n, _, _ := p.ends[end].write(b, false) // after a close it writes nothing
				p.wrote[end] = append(p.wrote[end], b[:n]...)
			case op < 18 && p.ends[end].stage == stageOpen:
				p.readAt(end, 1+r.IntN(1<<16))
			case op == 18 && step > 200 && p.ends[end].stage == stageOpen:
				_ = p.ends[end].finWrites() // or it is closed
			case op == 19 && step > 300:
				p.ends[end].shut()
			}
		}
		for end, c := range p.ends {
			if got, all := p.read[end], p.wrote[1-end]; !bytes.HasPrefix(all, got) {
				t.Fatalf("seed %d: %v read %d bytes that are not what was written", seed, c.side, len(got))
			}
			c.shut()
		}
		for passed := true; passed; {
			passed = p.pass(0) || p.pass(1)
		}
		for _, c := range p.ends {
			if !c.finished || c.err != nil {
				t.Fatalf("seed %d: %v is over %t, with %v", seed, c.side, c.finished, c.err)
			}
		}
	}
}
