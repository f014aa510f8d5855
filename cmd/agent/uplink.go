package main

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/client"
	"github.com/argomesh/argomesh/stream/tunnel"
)

// uplink is what only one agent of a spoke does at a time: it keeps the
// connection to the principal and mirrors over it, and lets the hub reach services
// of the spoke.
type uplink struct {
	mirror mirror.Config
	memory *memory
	client *client.Client
	tunnel *tunnel.Acceptor // nil: the hub may reach nothing
	active prometheus.Gauge

	mu   sync.Mutex        // guards what follows
	link *mirror.Mirror    // of this term; the client's runs begin after it is set
	info *stream.SpokeInfo // the newest; nil before the first
}

// run works until ctx is done. It is called again in a later term, and begins
// with nothing of the last one: another agent may have worked since.
func (u *uplink) run(ctx context.Context) error {
	if u.memory.load(ctx) != nil {
		return nil // ctx is done
	}
	link, err := mirror.New(u.mirror)
	if err != nil {
		return err
	}
	u.mu.Lock()
	u.link = link
	if u.info != nil {
		link.Tell(*u.info)
	}
	u.mu.Unlock()
	u.active.Set(1)
	defer u.active.Set(0)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return link.Run(ctx) })
	g.Go(func() error { return u.client.Run(ctx) })
	if u.tunnel != nil {
		g.Go(func() error { return u.tunnel.Run(ctx) })
	}
	return g.Wait()
}

// tell hands the newest info on the spoke to the link of this and later terms.
func (u *uplink) tell(info stream.SpokeInfo) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.info = &info
	if u.link != nil {
		u.link.Tell(info)
	}
}

// serve is client.Config.Serve.
func (u *uplink) serve(ctx context.Context, w stream.Welcome, conn *client.Conn) error {
	u.mu.Lock()
	link := u.link
	u.mu.Unlock()
	return link.Serve(ctx, mirror.Peer{Connection: w.Connection, HubUID: w.HubUID, Children: w.Children}, conn)
}
