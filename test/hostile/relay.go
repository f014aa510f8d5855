//go:build linux

package main

import (
	"context"
	"errors"
	"sync"
)

// relay lets attacks have a stream one after the other: what one leaves to be said or heard
// when its turn is over does not meddle with the next.
type relay struct {
	stream messages
	heard  chan []byte
	err    error // why nothing more comes; set before heard is closed

	mu sync.Mutex // one of them sends at a time
}

// newRelay hears stream until that ends, or ctx.
func newRelay(ctx context.Context, stream messages) *relay {
	r := &relay{stream: stream, heard: make(chan []byte)}
	go func() {
		defer close(r.heard)
		for {
			var b []byte
			if r.err = stream.RecvMsg(&b); r.err != nil {
				return
			}
			select {
			case r.heard <- b:
			case <-ctx.Done():
				r.err = ctx.Err()
				return
			}
		}
	}()
	return r
}

// during is the stream for as long as ctx is not done.
func (r *relay) during(ctx context.Context) messages { return turnOf{ctx, r} }

// turnOf is one attack's end of a relay.
type turnOf struct {
	ctx   context.Context //nolint:containedctx // it is the turn
	relay *relay
}

func (t turnOf) SendMsg(m any) error {
	t.relay.mu.Lock()
	defer t.relay.mu.Unlock()
	if err := t.ctx.Err(); err != nil {
		return err
	}
	return t.relay.stream.SendMsg(m)
}

func (t turnOf) RecvMsg(m any) error {
	into, ok := m.(*[]byte)
	if !ok {
		return errors.New("what is received goes into no bytes")
	}
	select {
	case b, more := <-t.relay.heard:
		if !more {
			return t.relay.err
		}
		*into = b
		return nil
	case <-t.ctx.Done():
		return t.ctx.Err()
	}
}
