// Package sim runs both sides of a link in one process: real Mirrors over
// backends/memory and an in-memory carrier of Frames, under the virtual time of
// testing/synctest and a schedule drawn from a seed. It cuts, kills, delays and
// fails, and checks the invariants of the design on what the stores saw.
package sim

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/streampb"
)

// errCut is what both ends of a carrier return once it was cut.
var errCut = errors.New("the carrier was cut")

// Carrier is one end of a connection in memory. Frames cross it as bytes, in
// order, each after a delay. It keeps the contract of mirror.Conn.
type Carrier struct {
	ctx     context.Context
	in, out chan delayed
	delay   func() time.Duration
}

type delayed struct {
	due   time.Time
	frame []byte
}

// Pipe returns both ends of a connection that lives until cut is called. delay
// is asked for each frame.
func Pipe(ctx context.Context, delay func() time.Duration) (a, b *Carrier, cut func()) {
	ctx, cancel := context.WithCancel(ctx)
	ab, ba := make(chan delayed, 16), make(chan delayed, 16)
	return &Carrier{ctx: ctx, in: ba, out: ab, delay: delay}, &Carrier{ctx: ctx, in: ab, out: ba, delay: delay}, cancel
}

// Send blocks while the other end takes nothing.
func (c *Carrier) Send(m stream.Message) error {
	frame, err := proto.Marshal(stream.FrameOf(m))
	if err != nil {
		return err
	}
	select {
	case c.out <- delayed{due: time.Now().Add(c.delay()), frame: frame}:
		return nil
	case <-c.ctx.Done():
		return errCut
	}
}

// Recv returns the next message when its time has come.
func (c *Carrier) Recv() (stream.Message, error) {
	select {
	case d := <-c.in:
		due := time.NewTimer(time.Until(d.due))
		defer due.Stop()
		select {
		case <-due.C:
		case <-c.ctx.Done():
			return nil, errCut
		}
		var frame streampb.Frame
		if err := proto.Unmarshal(d.frame, &frame); err != nil {
			return nil, err
		}
		return stream.ParseFrame(&frame)
	case <-c.ctx.Done():
		return nil, errCut
	}
}

// dice is a seeded source of chance that several goroutines share.
type dice struct {
	mu  sync.Mutex // guards rng
	rng rng
}

type rng interface{ IntN(n int) int }

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

// upTo returns a duration below limit.
func (d *dice) upTo(limit time.Duration) time.Duration { return time.Duration(d.n(int(limit))) }
