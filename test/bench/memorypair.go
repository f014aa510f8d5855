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
	"github.com/argomesh/argomesh/test/kit"
)

// memoryPair is a pair in this process, with stores in memory.
type memoryPair struct {
	dir     string
	hub     *memoryHub
	agent   *simulated
	network *network // between the two
	counted *traffic // above TLS
	stop    func() error
}

func startMemoryPair(ctx context.Context, _ *bench) (_ *memoryPair, err error) {
	p := &memoryPair{counted: newTraffic(), stop: func() error { return nil }}
	if p.dir, err = os.MkdirTemp("", "argomesh-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close(ctx, true))
		}
	}()
	var ca authority
	if p.hub, ca, err = newMemoryHub(ctx, p.dir, memory.New(memory.Config{}), []string{edge}); err != nil {
		return nil, err
	}
	if p.network, err = startNetwork(ctx, p.hub.address); err != nil {
		return nil, err
	}
	creds, err := ca.credentials(edge)
	if err != nil {
		return nil, err
	}
	metrics, err := linkmetrics.New(prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	if p.agent, err = newSimulated(edge, p.network.Address(), &past{forgets: true}, memory.New(memory.Config{}), nil,
		countingCredentials{creds, p.counted}, metrics, func() {}); err != nil {
		return nil, err
	}
	p.stop = kit.Start(ctx, func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return p.hub.run(ctx) })
		g.Go(func() error { return p.agent.run(ctx) })
		return g.Wait()
	})
	return p, nil
}

func (p *memoryPair) close(context.Context, bool) error {
	err := p.stop()
	if p.network != nil {
		err = errors.Join(err, p.network.close())
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

func (p *memoryPair) traffic() *traffic    { return p.counted }
func (p *memoryPair) sever()               { p.network.Sever() }
func (p *memoryPair) processes() []subject { return []subject{self("hub and agent")} }

func (p *memoryPair) compare(context.Context) error {
	left, err := parsed(p.hub.store.List(stream.Application, edge))
	if err != nil {
		return err
	}
	right, err := parsed(p.agent.store.List(stream.Application, ""))
	if err != nil {
		return err
	}
	return lost(differences(left, right))
}

// fillLimit bounds the filling of stores in memory.
const fillLimit = 5 * time.Minute

// fill also waits until nothing passes any more. The statuses are short.
func (p *memoryPair) fill(ctx context.Context, apps []string) (created, shown time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, fillLimit)
	defer cancel()
	onSpoke, onHub := newArrivals(len(apps)), newArrivals(len(apps))
	wanted := make(map[string]bool, len(apps)) // those of a size before may change meanwhile
	for _, name := range apps {
		wanted[name] = true
	}
	cancelSpoke := p.agent.store.Subscribe(func(key stream.ResourceKey) {
		if wanted[key.Name] {
			onSpoke.add(key.Name)
		}
	})
	defer cancelSpoke()
	begun := time.Now()
	for _, name := range apps {
		key := stream.ResourceKey{Kind: stream.Application, Namespace: edge, Name: name}
		if _, err := p.hub.store.Create(ctx, key, text(application(name, edge, edge, revision(1)))); err != nil {
			return 0, 0, err
		}
	}
	if err := onSpoke.wait(ctx); err != nil {
		return 0, 0, fmt.Errorf("Applications on the spoke: %w", err)
	}
	created = time.Since(begun)
	cancelHub := p.hub.store.Subscribe(func(key stream.ResourceKey) {
		if o, ok := p.hub.store.Get(key); ok && wanted[key.Name] && isSynced(o) {
			onHub.add(key.Name)
		}
	})
	defer cancelHub()
	begun = time.Now()
	for _, name := range apps {
		if err := p.writeStatus(ctx, name); err != nil {
			return 0, 0, err
		}
	}
	if err := onHub.wait(ctx); err != nil {
		return 0, 0, fmt.Errorf("statuses on the hub: %w", err)
	}
	shown = time.Since(begun)
	_, err = p.counted.settled(ctx, 0, quietTime)
	return created, shown, err
}

// writeStatus adds a short status as the application controller would.
func (p *memoryPair) writeStatus(ctx context.Context, name string) error {
	for {
		old, ok := p.agent.store.Get(p.agent.key(name))
		if !ok {
			return fmt.Errorf("%s is not on the spoke any more", name)
		}
		all, err := parsed([]backends.Object{old})
		if err != nil {
			return err
		}
		all[name]["status"] = map[string]any{"sync": map[string]any{"status": "Synced", "revision": revision(1)}}
		if _, err := p.agent.store.Update(ctx, old, text(all[name])); !errors.Is(err, stream.ErrConflict) {
			return err
		}
	}
}
