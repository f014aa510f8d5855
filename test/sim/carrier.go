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
// order, each after a delay. It keeps the contract of session.Conn.
type Carrier struct {
	ctx      context.Context //nolint:containedctx // the life of the connection
	in, out  chan delayed
	ended    <-chan struct{} // the other end sends no more
	ending   chan struct{}
	endOnce  sync.Once
	delay    func() time.Duration
	lastSent time.Time // when what was sent last arrives; only Send uses it
}

type delayed struct {
	due   time.Time
	frame []byte
}

// Pipe returns both ends of a connection that lives until ctx is done, or until
// an end was closed and the other one has read what was under way. fromA and fromB
// are asked how long each frame takes.
func Pipe(ctx context.Context, fromA, fromB func() time.Duration) (a, b *Carrier) {
	ab, ba := make(chan delayed, 16), make(chan delayed, 16)
	aEnds, bEnds := make(chan struct{}), make(chan struct{})
	return &Carrier{ctx: ctx, in: ba, out: ab, delay: fromA, ending: aEnds, ended: bEnds},
		&Carrier{ctx: ctx, in: ab, out: ba, delay: fromB, ending: bEnds, ended: aEnds}
}

// Send blocks while the other end takes nothing.
func (c *Carrier) Send(m stream.Message) error {
	frame, err := proto.Marshal(stream.FrameOf(m))
	if err != nil {
		return err
	}
	due := time.Now().Add(c.delay())
	if due.Before(c.lastSent) {
		due = c.lastSent // a stream keeps its order
	}
	c.lastSent = due
	select {
	case c.out <- delayed{due: due, frame: frame}:
		return nil
	case <-c.ctx.Done():
		return errCut
	}
}

// Recv returns the next message when its time has come.
func (c *Carrier) Recv() (stream.Message, error) {
	select {
	case d := <-c.in:
		return c.arrive(d)
	case <-c.ctx.Done():
		return nil, errCut
	case <-c.ended:
		select {
		case d := <-c.in:
			return c.arrive(d)
		default:
			return nil, errCut
		}
	}
}

func (c *Carrier) arrive(d delayed) (stream.Message, error) {
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
}

// Close says that this end sends no more. What is under way still arrives.
func (c *Carrier) Close() { c.endOnce.Do(func() { close(c.ending) }) }
