package redis

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"

	"github.com/argomesh/argomesh/proxies/redis/resp"

	"golang.org/x/sync/errgroup"
)

func newCaller(h *Hub, conn, up net.Conn, spawn spawn) *caller {
	c := &caller{
		hub: h, spawn: spawn,
		conn:    &resp.DeadlineConn{Conn: conn, WriteTime: h.cfg.WriteTimeout},
		up:      &resp.DeadlineConn{Conn: up, WriteTime: h.cfg.WriteTimeout},
		waiting: make(chan *entry, h.cfg.MaxPipelined),
		sets:    map[string]map[string]struct{}{},
	}
	c.in, c.out = resp.NewWire(c.conn), bufio.NewWriterSize(toCaller{c.conn}, resp.MaxLine)
	c.fromHub, c.toHub = resp.NewWire(c.up), bufio.NewWriterSize(c.up, resp.MaxLine)
	c.listener, c.discarded = newListener(h, spawn), bufio.NewWriterSize(io.Discard, 16)
	return c
}

// run serves until either side ends, or ctx.
func (c *caller) run(ctx context.Context) {
	g, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { _, _ = c.conn.Close(), c.up.Close() }) // it interrupts all
	defer func() {
		if stop() {
			_, _ = c.conn.Close(), c.up.Close()
		}
	}()
	defer c.listener.detachAll()
	g.Go(func() error { return c.read(ctx) })
	g.Go(func() error { return c.relay(ctx) })
	g.Go(func() error { return c.push(ctx) })
	err := g.Wait()
	if reason := ending(err); reason != "" {
		c.hub.metrics.refused.WithLabelValues(reason).Inc()
		c.hub.cfg.Log.Debug().Err(err).Msg("a connection of the Redis proxy ended")
	}
	// What was begun for commands that no one waits for any more.
	for {
		select {
		case e := <-c.waiting:
			e.drop()
		default:
			if c.current != nil {
				c.current.drop()
			}
			return
		}
	}
}

// ending is why we end a caller's connection, as the metrics have it; empty when it
// was the caller who did, or no one is to blame.
func ending(err error) string {
	var ours callerError
	timeout := errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case errors.Is(err, errBrokeOff):
		return "agent"
	case errors.Is(err, resp.ErrProtocol), errors.Is(err, resp.ErrTooLong):
		return "protocol"
	case errors.Is(err, errSlow), timeout && errors.As(err, &ours):
		return "slow"
	case timeout: // the only other writes
		return "redis"
	}
	return ""
}
