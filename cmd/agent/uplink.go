package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/client"
)

// uplink is what only one agent of a spoke does at a time: it keeps the
// connection to the principal and mirrors over it.
type uplink struct {
	mirror mirror.Config
	memory *memory
	client *client.Client
	active prometheus.Gauge

	link *mirror.Mirror // of this term; the client's runs begin after it is set
}

// run works until ctx is done. It is called again in a later term, and begins
// with nothing of the last one: another agent may have worked since.
func (u *uplink) run(ctx context.Context) error {
	if u.memory.load(ctx) != nil {
		return nil // ctx is done
	}
	var err error
	if u.link, err = mirror.New(u.mirror); err != nil {
		return err
	}
	u.active.Set(1)
	defer u.active.Set(0)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return u.link.Run(ctx) })
	g.Go(func() error { return u.client.Run(ctx) })
	return g.Wait()
}

// serve is client.Config.Serve.
func (u *uplink) serve(ctx context.Context, w stream.Welcome, conn *client.Conn) error {
	return u.link.Serve(ctx, mirror.Peer{Connection: w.Connection, HubUID: w.HubUID}, conn)
}
