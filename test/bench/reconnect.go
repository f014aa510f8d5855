//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

// runT4 measures a reconnect with 10,000 Applications when nothing changed.
func runT4(ctx context.Context, b *bench, s *Scenario) (err error) {
	const n = 10000
	s.Setup = "Real mirrors, stream server and client with mutual TLS over loopback, stores in memory, in one process; 10,000 Applications with a short status. " +
		"Bytes are counted between TLS and HTTP/2, both ways, from the dial until nothing passes for a second."
	dir, err := os.MkdirTemp("", "argomesh-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	hub, ca, err := newMemoryHub(ctx, dir, memory.New(memory.Config{}), []string{edge})
	if err != nil {
		return err
	}
	network, err := startNetwork(ctx, hub.address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, network.close()) }()
	creds, err := ca.credentials(edge)
	if err != nil {
		return err
	}
	metrics, err := linkmetrics.New(prometheus.NewRegistry())
	if err != nil {
		return err
	}
	counted := newTraffic()
	agent, err := newSimulated(edge, network.Address(), &past{forgets: true}, memory.New(memory.Config{}), nil, countingCredentials{creds, counted}, metrics, func() {})
	if err != nil {
		return err
	}
	stop := background(ctx, func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return hub.run(ctx) })
		g.Go(func() error { return agent.run(ctx) })
		return g.Wait()
	})
	defer func() { err = errors.Join(err, stop()) }()

	b.say("filling the stores")
	limited, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := fill(limited, hub, agent, n); err != nil {
		return err
	}
	if _, err := counted.settled(limited, 0, quietTime); err != nil {
		return err
	}
	b.say("reconnecting")
	var times []time.Duration
	most := int64(0)
	err = s.measure(ctx, "reconnects", []subject{self("hub and agent")}, func() error {
		for range 5 {
			before := counted.count()
			network.Sever()
			p, err := counted.settled(limited, before, quietTime)
			if err != nil {
				return err
			}
			times, most = append(times, p.took), max(most, p.bytes)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.target("unchanged reconnect, frames", float64(most), "B", atMost(4<<10), "the most of 5, HTTP/2 settings and gRPC headers included")
	s.target("unchanged reconnect, time", quantile(times, 1).Seconds(), "s", atMost(1), "the slowest of 5, TLS handshake included; back-off before the dial not")
	left, err := parsed(hub.store.List(stream.Application, edge))
	if err != nil {
		return err
	}
	right, err := parsed(agent.store.List(stream.Application, ""))
	if err != nil {
		return err
	}
	return lost(differences(left, right))
}

// fill makes n Applications on the hub, and a status for each on the spoke, and
// returns when the hub shows all of them.
func fill(ctx context.Context, hub *memoryHub, agent *simulated, n int) error {
	spoke, shown := newArrivals(n), newArrivals(n)
	cancelSpoke := agent.store.Subscribe(func(key stream.ResourceKey) { spoke.add(key.Name) })
	defer cancelSpoke()
	for _, name := range names(n) {
		key := stream.ResourceKey{Kind: stream.Application, Namespace: edge, Name: name}
		if _, err := hub.store.Create(ctx, key, text(application(name, edge, edge, revision(1)))); err != nil {
			return err
		}
	}
	if err := spoke.wait(ctx); err != nil {
		return fmt.Errorf("Applications on the spoke: %w", err)
	}
	cancelHub := hub.store.Subscribe(func(key stream.ResourceKey) {
		if o, ok := hub.store.Get(key); ok && isSynced(o) {
			shown.add(key.Name)
		}
	})
	defer cancelHub()
	for _, name := range names(n) {
		if err := writeStatus(ctx, agent, name); err != nil {
			return err
		}
	}
	if err := shown.wait(ctx); err != nil {
		return fmt.Errorf("statuses on the hub: %w", err)
	}
	return nil
}

// writeStatus adds a short status as the application controller would.
func writeStatus(ctx context.Context, agent *simulated, name string) error {
	for {
		old, ok := agent.store.Get(agent.key(name))
		if !ok {
			return fmt.Errorf("%s is not on the spoke any more", name)
		}
		all, err := parsed([]backends.Object{old})
		if err != nil {
			return err
		}
		all[name]["status"] = map[string]any{"sync": map[string]any{"status": "Synced", "revision": revision(1)}}
		if _, err := agent.store.Update(ctx, old, text(all[name])); !errors.Is(err, stream.ErrConflict) {
			return err
		}
	}
}
