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
	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/bench/report"
	"github.com/argomesh/argomesh/test/kit"
)

// runT1 measures how many changes pass through one agent, and through one principal.
func runT1(ctx context.Context, b *bench, s *report.Scenario) error {
	s.Setup = "Real mirrors, stream server and clients with mutual TLS over loopback, stores in memory that only keep bytes; hub, agents and load share one process and its cores. " +
		"In a wave every Application is changed once, and the next begins when the last change of the one before has arrived: nothing is coalesced. The agents have the limits of a large hub, and no Application is changed more often in the waves than one object may be written at once. Agents that keep nothing are real stream clients and links without a store: what is left is the principal and the load."
	for _, run := range []flood{
		{what: "one agent", agents: 1, apps: 2000, waves: 10, burst: 20, goal: 1000},
		{what: "principal with 100 agents that keep nothing", agents: 100, apps: 100, waves: 10, burst: 5, goal: 10000, thin: true},
		{what: "both ends of 100 agents", agents: 100, apps: 100, waves: 5},
	} {
		b.say("%s: %d Applications, %d waves", run.what, run.agents*run.apps, run.waves)
		if err := run.measure(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", run.what, err)
		}
	}
	return nil
}

// flood is one measurement of throughput.
type flood struct {
	what         string
	agents, apps int // apps of each agent
	waves        int
	burst        int     // changes of each that no one waits for; zero leaves that out
	goal         float64 // changes per second; zero is no target
	thin         bool    // the agents keep nothing
}

// fleetInMemory is a hub in memory with its agents, all in this process.
type fleetInMemory struct {
	hub    *memoryHub
	names  []string     // of the agents
	agents []*simulated // none when the agents keep nothing
	apps   []string

	wave     atomic.Pointer[wave] // the present one
	writes   atomic.Int64         // how often anything was applied at an agent
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

func (r flood) measure(ctx context.Context, s *report.Scenario) (err error) {
	dir, err := os.MkdirTemp("", "argomesh-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	f, stop, err := startFleet(ctx, dir, r)
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
	err = measurePhase(ctx, s, r.what+": waves", []subject{self("hub, agents and load")}, func() error {
		begun := time.Now()
		for range r.waves {
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
	changes := r.agents * r.apps * r.waves
	speed, remark := float64(changes)/took.Seconds(), fmt.Sprintf("%d changes in %s", changes, took.Round(time.Millisecond))
	if r.goal > 0 {
		s.Target(r.what+": changes", speed, "/s", report.AtLeast(r.goal), remark)
	} else {
		s.Note(r.what+": changes", speed, "/s", remark)
	}
	cpu := s.Processes[len(s.Processes)-1].CPUSeconds
	s.Note(r.what+": CPU for one change", 1e6*cpu/float64(changes), "µs", "load included")
	if writes != int64(changes) {
		return fmt.Errorf("%d changes were applied %d times", changes, writes)
	}

	if r.burst == 0 {
		return f.compare()
	}
	// What piles up when no one waits is keys, not contents.
	writes = f.writes.Load()
	err = measurePhase(ctx, s, r.what+": burst", []subject{self("hub, agents and load")}, func() error {
		for range r.burst - 1 {
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
	s.Note(r.what+fmt.Sprintf(": times each was applied after %d changes in a burst", r.burst), float64(writes)/float64(r.agents*r.apps), "")
	s.Target(r.what+": heap after the burst, of that before the waves", 100*float64(after)/float64(before), "%", report.AtMost(125),
		fmt.Sprintf("%s, after a collection: bounded by the number of objects", report.Quantity(mebibytes(after), "MiB")))
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
func startFleet(ctx context.Context, dir string, r flood) (f *fleetInMemory, stop func() error, err error) {
	f = &fleetInMemory{apps: names(r.apps), names: agentNames(r.agents)}
	hub, ca, err := newMemoryHub(ctx, dir, newByteStore(), f.names)
	if err != nil {
		return nil, nil, err
	}
	f.hub = hub
	metrics, err := linkmetrics.New(prometheus.NewRegistry())
	if err != nil {
		return nil, nil, err
	}
	connected := newArrivals(r.agents)
	index := make(map[string]int, r.apps)
	for i, name := range f.apps {
		index[name] = i
	}
	parts := []func(context.Context) error{hub.run}
	for i, name := range f.names {
		creds, err := ca.credentials(name)
		if err != nil {
			return nil, nil, err
		}
		up := func() { connected.add(name) }
		if r.thin {
			thin, err := newThin(name, hub.address, creds, up, func(e stream.Event) { f.told(i, index[e.Key.Name], e.Data) })
			if err != nil {
				return nil, nil, err
			}
			parts = append(parts, thin.Run)
		} else {
			a, err := newSimulated(name, hub.address, &past{forgets: true}, newByteStore(), largeBudget(name), creds, metrics, up)
			if err != nil {
				return nil, nil, err
			}
			a.store.Subscribe(func(key stream.ResourceKey) {
				if o, ok := a.store.Get(key); ok {
					f.told(i, index[key.Name], o.Raw)
				}
			})
			f.agents = append(f.agents, a)
			parts = append(parts, a.run)
		}
		contents := make([][]byte, r.apps)
		for n, app := range f.apps {
			contents[n] = text(application(app, name, name, revisionPlace))
		}
		f.raw = append(f.raw, contents)
	}
	stop = kit.Start(ctx, func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		for _, run := range parts {
			g.Go(func() error { return run(ctx) })
		}
		return g.Wait()
	})
	if err := connected.wait(ctx); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("connect the agents: %w", err), stop())
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

// told is called when an agent has applied content.
func (f *fleetInMemory) told(agent, app int, content []byte) {
	f.writes.Add(1)
	w := f.wave.Load()
	if w == nil || !bytes.Contains(content, w.marker) {
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
	for agent := range f.names {
		for app := range f.apps {
			w.left[[2]int{agent, app}] = struct{}{}
		}
	}
	f.wave.Store(w)
	for app := range f.apps { // agent by agent would leave the others idle
		for agent := range f.names {
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
		return fmt.Errorf("%d of %d changes did not arrive: %w", len(w.left), len(f.names)*len(f.apps), ctx.Err())
	}
}

func (f *fleetInMemory) key(agent, app int) stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.Application, Namespace: f.names[agent], Name: f.apps[app]}
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
