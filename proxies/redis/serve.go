package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/argomesh/argomesh/proxies/redis/resp"

	"golang.org/x/sync/errgroup"
)

// Run serves on l until ctx is done, then ends all connections. It closes l in every
// case and is called once.
func (h *Hub) Run(ctx context.Context, l net.Listener) error {
	h.cfg.Log.Info().Stringer("listener", l.Addr()).Msg("Redis proxy listening")
	g, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // Accept says so
	defer stop()
	if h.lastKnown != nil {
		g.Go(func() error { return h.lastKnown.run(ctx) })
	}
	var work sync.WaitGroup
	serving, end := context.WithCancel(ctx)
	work.Go(func() { h.subscriptions.run(serving) })
	work.Go(func() { h.cfg.Owners.Watch(serving, h.subscriptions.changed) })
	g.Go(func() error {
		defer func() {
			end()
			work.Wait()
			for _, r := range h.remotes { // no one else is left
				r.closeIdle()
			}
		}()
		spawn := func(f func(context.Context)) { work.Go(func() { f(serving) }) }
		return h.accept(ctx, l, func(conn net.Conn, closed func()) {
			spawn(func(ctx context.Context) { h.count(ctx, conn, closed, spawn) })
		})
	})
	return g.Wait()
}

// count serves a connection and counts it while it is open.
func (h *Hub) count(ctx context.Context, conn net.Conn, closed func(), spawn spawn) {
	defer closed()
	h.metrics.connections.Inc()
	defer h.metrics.connections.Dec()
	h.serve(ctx, conn, spawn)
}

// accept takes connections until ctx is done, and hands them to serve, which does not block.
// One beyond MaxConnections that are not closed is refused.
func (h *Hub) accept(ctx context.Context, l net.Listener, serve func(conn net.Conn, closed func())) error {
	open := make(chan struct{}, h.cfg.MaxConnections)
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // closed by us
			}
			return errors.Join(fmt.Errorf("redis proxy: accept: %w", err), l.Close())
		}
		select {
		case open <- struct{}{}:
			serve(conn, func() { <-open })
		default:
			h.metrics.refused.WithLabelValues("connections").Inc()
			refuse(conn, "ERR max number of clients reached")
		}
	}
}

// refuseTime bounds what is sent to a caller that is not served.
const refuseTime = time.Second

// refuse writes an error, and closes.
func refuse(conn net.Conn, text string) {
	_ = conn.SetDeadline(time.Now().Add(refuseTime))
	_, _ = conn.Write(resp.EncodeError(text)) // it is closed in any case
	_ = conn.Close()
}

// serve serves one caller to its end.
func (h *Hub) serve(ctx context.Context, conn net.Conn, spawn spawn) {
	dial, cancel := context.WithTimeout(ctx, h.cfg.AnswerTimeout)
	up, err := h.cfg.DialRedis(dial)
	cancel()
	if err != nil {
		h.metrics.refused.WithLabelValues("redis").Inc()
		h.cfg.Log.Warn().Err(err).Msg("the hub's Redis cannot be reached")
		refuse(conn, "ERR the hub's redis cannot be reached, the principal's log says why")
		return
	}
	newCaller(h, conn, up, spawn).run(ctx)
}
