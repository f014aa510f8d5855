package sim

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/linkmetrics"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

const (
	// scaleApplications is how many Applications each agent has.
	scaleApplications = 100
	// scaleLimit is the resident memory of 10,000 agents, both sides of each link
	// with their stores in one process, in bytes.
	scaleLimit = 4 << 30
	// scaleProcess is the part of the limit that the process itself may take, whatever
	// the number of agents, and scaleCode that of its code and what else its runtime
	// does not manage, in bytes.
	scaleProcess = 64 << 20
	scaleCode    = 48 << 20
	// scaleSpare is which part of the limit is left free: garbage is collected before.
	scaleSpare = 8
)

// TestScale runs many agents with 100 Applications each, each with a status, until
// all links agree: SIM_SCALE of them (make sim-scale: 10,000), else 20, which only
// shows that the test works. From 1,000 on every agent has a share of the limit,
// and garbage is collected when seven eighths of it are taken, not when the heap has
// doubled.
func TestScale(t *testing.T) {
	agents := 20
	if text := os.Getenv("SIM_SCALE"); text != "" {
		var err error
		if agents, err = strconv.Atoi(text); err != nil {
			t.Fatalf("SIM_SCALE: %v", err)
		}
	}
	limit := uint64(scaleProcess + (scaleLimit-scaleProcess)/10_000*agents)
	if agents >= 1000 {
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(int64(limit - limit/scaleSpare - scaleCode)))
	}
	started := time.Now()
	synctest.Test(t, func(t *testing.T) {
		f := newCrowd(t, agents)
		for len(f.behind()) > 0 {
			if time.Since(f.began) > time.Hour {
				t.Fatalf("after an hour of virtual time %d agents are behind, the first %s", len(f.behind()), f.behind()[0])
			}
			pause(f.ctx, time.Second)
		}
		now, peak := resident(t)
		runtime.GC()
		var heap runtime.MemStats
		runtime.ReadMemStats(&heap)
		t.Logf("%d agents, %d Applications on each side: resident %d MiB, at most %d MiB, heap %d MiB, stacks %d MiB, %d goroutines, "+
			"%d collections, agreed after %s of virtual time",
			agents, agents*scaleApplications, now>>20, peak>>20, heap.HeapAlloc>>20, heap.StackInuse>>20, runtime.NumGoroutine(), heap.NumGC,
			time.Since(f.began))
		if dir := os.Getenv("SIM_PROFILE"); dir != "" {
			writeHeapProfile(t, filepath.Join(dir, "scale.heap"))
		}
		if agents >= 1000 && peak > limit {
			t.Errorf("%d agents took %d MiB, more than their share of %d MiB", agents, peak>>20, limit>>20)
		}
		f.stop()
	})
	t.Logf("in %s", time.Since(started).Round(time.Second))
}

// crowd is one hub with many agents, without faults.
type crowd struct {
	t       *testing.T
	ctx     context.Context //nolint:containedctx // the bubble's life
	end     context.CancelFunc
	began   time.Time
	wait    sync.WaitGroup
	hub     *memory.Store
	metrics *linkmetrics.Metrics
	agents  []*crowdAgent
	byName  map[string]*crowdAgent
}

type crowdAgent struct {
	Agent
	changed    func(stream.ResourceKey) // of the hub
	store      *memory.Store
	hub, spoke *mirror.Mirror
}

func newCrowd(t *testing.T, agents int) *crowd {
	metrics, err := linkmetrics.New(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	f := &crowd{t: t, began: time.Now(), hub: memory.New(memory.Config{}), metrics: metrics, byName: map[string]*crowdAgent{}}
	f.ctx, f.end = context.WithCancel(t.Context())
	openProject(f.ctx, f.hub, defaultKey())
	for n := range agents {
		a := &crowdAgent{Agent: Agent{Name: fmt.Sprint("edge-", n), Mode: stream.Managed}}
		f.agents, f.byName[a.Name] = append(f.agents, a), a
	}
	// As the principal does: one subscription, each change to the agent it concerns.
	f.hub.Subscribe(func(key stream.ResourceKey) {
		if a := f.byName[key.Namespace]; a != nil && a.changed != nil {
			a.changed(key)
		}
	})
	for _, a := range f.agents {
		f.start(a)
	}
	synctest.Wait()
	for n := range scaleApplications {
		for _, a := range f.agents {
			f.create(a, n)
		}
		synctest.Wait()
	}
	return f
}

// start runs both sides of an agent's link and connects them.
func (f *crowd) start(a *crowdAgent) {
	subscribe := func(changed func(stream.ResourceKey)) func() {
		a.changed = changed
		return func() {}
	}
	a.store = memory.New(memory.Config{})
	a.hub = f.mirror(a, stream.Hub, f.hub, subscribe)
	a.spoke = f.mirror(a, stream.Spoke, a.store, nil)
	// The spoke's controller shows a status once.
	a.store.Subscribe(func(key stream.ResourceKey) {
		o, ok := a.store.Get(key)
		if !ok {
			return
		}
		if bytes.Contains(o.Raw, []byte(`"status":{`)) {
			return
		}
		app := parse(o.Raw)
		app.fields["status"] = map[string]any{
			"sync": map[string]any{"status": "Synced", "revision": strings.Repeat("0", 40)}, "health": map[string]any{"status": "Healthy"},
		}
		if _, err := a.store.Update(f.ctx, o, app.raw()); err != nil {
			f.t.Errorf("status of %s: %v", key, err)
		}
	})
	down, up := Pipe(f.ctx, noDelay, noDelay)
	peer := mirror.Peer{Connection: a.Name, HubUID: "hub-uid"}
	f.wait.Go(func() { _ = a.hub.Serve(f.ctx, peer, down) }) // both end with the fleet
	f.wait.Go(func() { _ = a.spoke.Serve(f.ctx, peer, up) })
}

func noDelay() time.Duration { return 0 }

func (f *crowd) mirror(a *crowdAgent, side stream.Side, store *memory.Store, subscribe func(func(stream.ResourceKey)) func()) *mirror.Mirror {
	name, err := identity.ParseAgentName(a.Name)
	if err != nil {
		f.t.Fatal(err)
	}
	m, err := mirror.New(mirror.Config{
		Rules: ownership.Rules{Marks: copies.Marks{Map: mapping.Map{Side: side, Mode: a.Mode, Agent: name, Namespace: argocdNamespace, ClusterServer: serverOf(a.Name)}}},
		Store: store, Subscribe: subscribe, Metrics: f.metrics, Tracer: noop.NewTracerProvider().Tracer(""), Log: zerolog.Nop(),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.wait.Go(func() {
		if err := m.Run(f.ctx); err != nil {
			f.t.Errorf("Run() = %v", err)
		}
	})
	return m
}

func (f *crowd) create(a *crowdAgent, n int) {
	key := a.key(stream.Hub, fmt.Sprint("app-", n))
	app := application{map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
		"metadata": map[string]any{"name": key.Name, "namespace": key.Namespace},
		"spec": map[string]any{
			"project": "default", "destination": map[string]any{"name": a.Name, "namespace": "web"},
			"source": map[string]any{"repoURL": "https://git.example/shop.git", "path": "apps/" + key.Name, "targetRevision": "HEAD"},
		},
	}}
	if _, err := f.hub.Create(f.ctx, key, app.raw()); err != nil {
		f.t.Fatal(err)
	}
}

// behind returns the agents whose sides do not yet agree on everything.
func (f *crowd) behind() []string {
	var names []string
	for _, a := range f.agents {
		for _, m := range []*mirror.Mirror{a.hub, a.spoke} {
			stats, err := m.Stats(f.ctx)
			if err != nil {
				f.t.Fatal(err)
			}
			if !stats.Agreed || stats.Applications != scaleApplications {
				names = append(names, a.Name)
				break
			}
		}
	}
	if len(names) > 0 {
		return names
	}
	for _, a := range f.agents {
		for _, o := range f.hub.List(stream.Application, a.Name) {
			if !strings.Contains(string(o.Raw), `"Healthy"`) {
				return []string{a.Name}
			}
		}
	}
	return nil
}

func (f *crowd) stop() {
	f.end()
	f.wait.Wait()
}

// resident returns the resident memory of this process and what it was at most, in
// bytes; zero where the system does not tell.
func resident(t *testing.T) (now, peak uint64) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Logf("resident memory is not known here: %v", err)
		return 0, 0
	}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		var kib uint64
		if _, err := fmt.Sscan(rest, &kib); err != nil {
			continue
		}
		switch name {
		case "VmRSS":
			now = kib << 10
		case "VmHWM":
			peak = kib << 10
		}
	}
	return now, peak
}

func writeHeapProfile(t *testing.T, path string) {
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := pprof.Lookup("heap").WriteTo(file, 0); err != nil {
		t.Fatal(err)
	}
}
