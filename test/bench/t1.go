//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/stream"
)

// runT1 measures how many changes pass through one agent, and through one principal.
func runT1(ctx context.Context, b *bench, s *Scenario) error {
	s.Setup = "Real mirrors, stream server and clients with mutual TLS over loopback, stores in memory; hub and agents share one process and its cores. " +
		"In a wave every Application is changed once, and the next begins when the last change of the one before has arrived: nothing is coalesced."
	for _, run := range []struct {
		what         string
		agents, apps int
		waves        int
		goal         float64
	}{
		{"one agent", 1, 1000, 20, 1000},
		{"100 agents of one principal", 100, 100, 10, 10000},
	} {
		b.say("%s: %d Applications, %d waves", run.what, run.agents*run.apps, run.waves)
		if err := throughput(ctx, s, run.what, run.agents, run.apps, run.waves, run.goal); err != nil {
			return fmt.Errorf("%s: %w", run.what, err)
		}
	}
	return nil
}

// fleetInMemory is a hub in memory with its agents, all in this process.
type fleetInMemory struct {
	hub    *memoryHub
	agents []*simulated
	apps   []string
	// arrived counts the Applications of the present wave that reached their spoke.
	wave     atomic.Pointer[wave]
	writes   atomic.Int64 // of the spokes' mirrors, all
	revision int
	raw      [][][]byte // contents by agent and Application, with a place for the revision
}

// wave is one change of every Application.
type wave struct {
	marker []byte // what a changed object contains
	mu     sync.Mutex
	left   map[[2]int]struct{} // agent and Application; guarded by mu
	done   chan struct{}
}

// marked is a revision as it stands in an object's JSON.
func marked(revision string) []byte { return []byte(`"targetRevision":"` + revision + `"`) }

func throughput(ctx context.Context, s *Scenario, what string, agents, apps, waves int, goal float64) (err error) {
	dir, err := os.MkdirTemp("", "argomesh-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	f, stop, err := startFleet(ctx, dir, agents, apps)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	if err := f.change(ctx, f.create, true); err != nil { // all Applications appear
		return err
	}
	if err := f.change(ctx, f.update, true); err != nil {
		return err
	}
	before := heap()
	var took time.Duration
	writes := f.writes.Load()
	err = s.measure(ctx, what+": waves", []subject{self("hub, agents and load")}, func() error {
		begun := time.Now()
		for range waves {
			if err := f.change(ctx, f.update, true); err != nil {
				return err
			}
		}
		took = time.Since(begun)
		return nil
	})
	if err != nil {
		return err
	}
	writes = f.writes.Load() - writes
	changes := agents * apps * waves
	s.target(what+": changes", float64(changes)/took.Seconds(), "/s", atLeast(goal), fmt.Sprintf("%d changes in %s", changes, took.Round(time.Millisecond)))
	if writes != int64(changes) {
		return fmt.Errorf("%d changes were %d writes on the spokes", changes, writes)
	}

	// A burst that nobody waits for: what piles up is keys, not contents.
	const burst = 20
	writes = f.writes.Load()
	err = s.measure(ctx, what+": burst", []subject{self("hub, agents and load")}, func() error {
		for range burst - 1 {
			if err := f.change(ctx, f.update, false); err != nil {
				return err
			}
		}
		return f.change(ctx, f.update, true)
	})
	if err != nil {
		return err
	}
	writes = f.writes.Load() - writes
	after := heap()
	s.note(what+fmt.Sprintf(": writes after %d changes of each in a burst", burst), float64(writes)/float64(agents*apps), "",
		"a spoke's writes for each Application")
	s.note(what+": heap before the waves", mebibytes(before), "MiB", "after a collection")
	s.target(what+": heap after the burst", mebibytes(after), "MiB", atMost(1.25*mebibytes(before)), "bounded by the number of objects: a quarter more at most")
	return f.compare()
}

// heap returns the bytes in use after a collection.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools still held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far from the limit
}

// startFleet returns when every agent is connected.
func startFleet(ctx context.Context, dir string, agents, apps int) (f *fleetInMemory, stop func() error, err error) {
	f = &fleetInMemory{apps: names(apps)}
	all := agentNames(agents)
	hub, ca, err := newMemoryHub(ctx, dir, all)
	if err != nil {
		return nil, nil, err
	}
	f.hub = hub
	metrics, err := mirror.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		return nil, nil, err
	}
	connected := make(chan struct{}, agents)
	index := make(map[string]int, apps)
	for i, name := range f.apps {
		index[name] = i
	}
	for i, name := range all {
		creds, err := ca.credentials(name)
		if err != nil {
			return nil, nil, err
		}
		a, err := newSimulated(name, hub.address, creds, metrics, func() { connected <- struct{}{} })
		if err != nil {
			return nil, nil, err
		}
		a.store.Subscribe(func(key stream.ResourceKey) { f.told(i, index[key.Name], a, key) })
		f.agents = append(f.agents, a)
		contents := make([][]byte, apps)
		for n, app := range f.apps {
			contents[n] = text(application(app, name, name, revisionPlace))
		}
		f.raw = append(f.raw, contents)
	}
	stop = background(ctx, func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return hub.run(ctx) })
		for _, a := range f.agents {
			g.Go(func() error { return a.run(ctx) })
		}
		return g.Wait()
	})
	for range all {
		select {
		case <-connected:
		case <-ctx.Done():
			return nil, nil, errors.Join(fmt.Errorf("wait for the agents to connect: %w", ctx.Err()), stop())
		}
	}
	return f, stop, nil
}

// revisionPlace stands in a content where a revision goes.
const revisionPlace = "REVISION"

func agentNames(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("edge-%04d", i)
	}
	return all
}

// told is called in the goroutine of each write on a spoke.
func (f *fleetInMemory) told(agent, app int, a *simulated, key stream.ResourceKey) {
	f.writes.Add(1)
	w := f.wave.Load()
	if w == nil {
		return
	}
	if o, ok := a.store.Get(key); !ok || !bytes.Contains(o.Raw, w.marker) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	place := [2]int{agent, app}
	if _, open := w.left[place]; !open {
		return
	}
	if delete(w.left, place); len(w.left) == 0 {
		close(w.done)
	}
}

// change writes every Application on the hub once and, if it is to wait, returns
// when all have reached their spokes.
func (f *fleetInMemory) change(ctx context.Context, write func(ctx context.Context, agent, app int) error, wait bool) error {
	f.revision++
	w := &wave{marker: marked(revision(f.revision)), left: map[[2]int]struct{}{}, done: make(chan struct{})}
	for agent := range f.agents {
		for app := range f.apps {
			w.left[[2]int{agent, app}] = struct{}{}
		}
	}
	f.wave.Store(w)
	for app := range f.apps { // agent by agent would leave the others idle
		for agent := range f.agents {
			if err := write(ctx, agent, app); err != nil {
				return err
			}
		}
	}
	if !wait {
		return nil
	}
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		return fmt.Errorf("%d of %d changes did not arrive: %w", len(w.left), len(f.agents)*len(f.apps), ctx.Err())
	}
}

func (f *fleetInMemory) key(agent, app int) stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.Application, Namespace: f.agents[agent].name.String(), Name: f.apps[app]}
}

func (f *fleetInMemory) content(agent, app int) []byte {
	return bytes.Replace(f.raw[agent][app], []byte(revisionPlace), []byte(revision(f.revision)), 1)
}

func (f *fleetInMemory) create(ctx context.Context, agent, app int) error {
	_, err := f.hub.store.Create(ctx, f.key(agent, app), f.content(agent, app))
	return err
}

func (f *fleetInMemory) update(ctx context.Context, agent, app int) error {
	key := f.key(agent, app)
	for {
		old, ok := f.hub.store.Get(key)
		if !ok {
			return fmt.Errorf("%s is not on the hub any more", key)
		}
		o := backends.Object{Key: key, UID: old.UID, ResourceVersion: old.ResourceVersion}
		if _, err := f.hub.store.Update(ctx, o, f.content(agent, app)); !errors.Is(err, stream.ErrConflict) {
			return err
		}
	}
}

// compare returns an error when a spoke does not hold what the hub does.
func (f *fleetInMemory) compare() error {
	for _, a := range f.agents {
		hub, err := parsed(f.hub.store.List(stream.Application, a.name.String()))
		if err != nil {
			return err
		}
		spoke, err := parsed(a.store.List(stream.Application, ""))
		if err != nil {
			return err
		}
		if err := lost(differences(hub, spoke)); err != nil {
			return fmt.Errorf("agent %s: %w", a.name, err)
		}
	}
	return nil
}

func parsed(objects []backends.Object) (map[string]map[string]any, error) {
	out := make(map[string]map[string]any, len(objects))
	for _, o := range objects {
		var m map[string]any
		if err := json.Unmarshal(o.Raw, &m); err != nil {
			return nil, fmt.Errorf("%s: %w", o.Key, err)
		}
		out[o.Key.Name] = m
	}
	return out, nil
}
