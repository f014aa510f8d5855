package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

const (
	agentName = "edge-1"
	namespace = "argocd"
	cascade   = "resources-finalizer.argocd.argoproj.io"
)

// World is a hub and a spoke, the link between them, and a stand-in for Argo
// CD's controller on the spoke. It runs in a synctest bubble.
type World struct {
	mode   stream.Mode
	chance *dice
	sides  [2]*side // hub, spoke
	faulty atomic.Bool
	// link state, owned by the goroutine that calls the World's methods
	cut  func()
	wait sync.WaitGroup
	ctx  context.Context //nolint:containedctx // the bubble's life
	end  context.CancelFunc

	mu          sync.Mutex        // guards what follows
	intended    map[string]bool   // UIDs of owner objects deleted with a cascade
	removed     map[string]string // UIDs of owner objects whose workloads went, and how
	ran         map[string]int    // commands by id, how often the controller ran them
	removedFrom map[string]string // and the UID of the copy they belonged to
	handled     map[string]string // by UID, the version the controller last acted on
	runs        []string          // each run, for the report of a failure
	broken      []string          // invariants seen broken
}

type side struct {
	which  stream.Side
	server *memory.Store // a client that never dies, the people's own
	client *memory.Store
	mirror *mirror.Mirror
	stop   context.CancelFunc
	done   chan struct{}
}

func newWorld(ctx context.Context, seed uint64, mode stream.Mode) *World {
	ctx, cancel := context.WithCancel(ctx)
	w := &World{
		mode: mode, chance: &dice{rng: rand.New(rand.NewPCG(seed, 0))}, ctx: ctx, end: cancel,
		intended: map[string]bool{}, removed: map[string]string{}, ran: map[string]int{}, handled: map[string]string{}, removedFrom: map[string]string{},
	}
	for i, which := range []stream.Side{stream.Hub, stream.Spoke} {
		server := memory.New(memory.Config{
			Lag:    true,
			NewUID: w.uid(which),
			Fault: func(memory.Op, stream.ResourceKey) error {
				if !w.faulty.Load() {
					return nil
				}
				switch w.chance.n(12) {
				case 0:
					return stream.ErrUnavailable
				case 1:
					return stream.ErrConflict
				}
				return nil
			},
			LostReply: func(memory.Op, stream.ResourceKey) error {
				if w.faulty.Load() && w.chance.n(15) == 0 {
					return stream.ErrUnavailable
				}
				return nil
			},
		})
		w.sides[i] = &side{which: which, server: server}
		w.deliver(server)
		w.start(w.sides[i])
	}
	w.spoke().server.Subscribe(w.witness)
	w.wait.Go(w.controller)
	w.wait.Go(w.connect)
	return w
}

// uid makes UIDs that tell the side and repeat with the seed.
func (w *World) uid(s stream.Side) func() string {
	var n atomic.Int64
	return func() string { return fmt.Sprintf("%s-%d", s, n.Add(1)) }
}

func (w *World) hub() *side   { return w.sides[0] }
func (w *World) spoke() *side { return w.sides[1] }

// owner is the side whose people write Applications.
func (w *World) owner() *side {
	if w.mode == stream.Managed {
		return w.hub()
	}
	return w.spoke()
}

func (w *World) other() *side {
	if w.mode == stream.Managed {
		return w.spoke()
	}
	return w.hub()
}

func (s *side) namespace() string {
	if s.which == stream.Hub {
		return agentName
	}
	return namespace
}

func (s *side) key(name string) stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.Application, Namespace: s.namespace(), Name: name}
}

// deliver lets a client's cache follow its server, late.
func (w *World) deliver(c *memory.Store) {
	c.Deliver(-1)
	w.wait.Go(func() {
		for w.pause(w.chance.upTo(80*time.Millisecond) + 1) {
			c.Deliver(1 + w.chance.n(4))
		}
		c.Deliver(-1)
	})
}

// pause lets virtual time pass; false when the world ends.
func (w *World) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// start runs a side's process.
func (w *World) start(s *side) {
	name, err := identity.ParseAgentName(agentName)
	if err != nil {
		panic(err)
	}
	metrics, err := mirror.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		panic(err)
	}
	s.client = s.server.Open()
	w.deliver(s.client)
	s.mirror, err = mirror.New(mirror.Config{
		Rules: mirror.Rules{
			Side: s.which, Mode: w.mode, Agent: name, Namespace: namespace,
			ClusterServer: "https://proxy:9090/agents/" + agentName,
		},
		Store: s.client, Window: 8, Metrics: metrics, Tracer: noop.NewTracerProvider().Tracer(""), Log: zerolog.Nop(),
	})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(w.ctx)
	s.stop, s.done = stop, make(chan struct{})
	go func(m *mirror.Mirror, done chan struct{}) {
		defer close(done)
		if err := m.Run(ctx); err != nil {
			panic(err)
		}
	}(s.mirror, s.done)
}

// kill ends a side's process at whatever instruction it is, and starts another.
func (w *World) kill(s *side) {
	s.client.Close() // no call of the dead process succeeds any more
	s.stop()
	<-s.done
	w.mu.Lock()
	defer w.mu.Unlock()
	w.start(s)
}

// connect keeps a connection between the processes, as server and client do.
func (w *World) connect() {
	for n := 0; ; n++ {
		a, b, cut := Pipe(w.ctx, func() time.Duration { return w.chance.upTo(60 * time.Millisecond) })
		w.mu.Lock()
		w.cut = cut
		hub, spoke := w.hub().mirror, w.spoke().mirror
		w.mu.Unlock()
		peer := mirror.Peer{Connection: fmt.Sprint("c", n), HubUID: "hub"}
		ended := make(chan struct{}, 2)
		for m, c := range map[*mirror.Mirror]*Carrier{hub: a, spoke: b} {
			go func() {
				_ = m.Serve(w.ctx, peer, c) // it ends by a cut, by a kill, or with the world
				ended <- struct{}{}
			}()
		}
		<-ended
		cut()
		<-ended
		if !w.pause(w.chance.upTo(500*time.Millisecond) + 1) {
			return
		}
	}
}

// cutLink ends the connection of the moment.
func (w *World) cutLink() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut != nil {
		w.cut()
	}
}

// controller stands in for Argo CD on the spoke: it runs operations, consumes
// refresh requests, and removes the workloads of Applications that are deleted
// with a cascade.
func (w *World) controller() {
	for w.pause(w.chance.upTo(300*time.Millisecond) + 1) {
		for _, o := range w.spoke().server.List(stream.Application, namespace) {
			w.control(o)
		}
	}
}

func (w *World) control(o backends.Object) {
	app := parse(o)
	meta := app["metadata"].(map[string]any)
	finalizers := list(meta["finalizers"])
	id, removes := "", false
	switch {
	case meta["deletionTimestamp"] != nil && slices.Contains(finalizers, cascade):
		removes = true
		meta["finalizers"] = slices.DeleteFunc(finalizers, func(f any) bool { return f == cascade })
	case app["operation"] != nil:
		status, _ := app["status"].(map[string]any)
		if status == nil {
			status = map[string]any{}
		}
		status["operationState"] = map[string]any{
			"operation": app["operation"], "phase": "Succeeded", "finishedAt": "2026-01-01T00:00:00Z",
			"startedAt": "2026-01-01T00:00:00Z",
		}
		app["status"] = status
		id = commandOf(app["operation"].(map[string]any))
		delete(app, "operation")
	default:
		return
	}
	switch _, err := w.spoke().server.Update(w.ctx, o, text(app)); {
	case err == nil:
	case !errors.Is(err, stream.ErrUnavailable):
		return // nothing happened
	case !w.happened(o, id):
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.handled[o.UID] == o.ResourceVersion {
		return // seen again by a late cache
	}
	w.handled[o.UID] = o.ResourceVersion
	if id != "" {
		w.ran[id]++
		w.runs = append(w.runs, fmt.Sprintf("%s ran at %s: %s", id, time.Now().Format(time.StampMilli), o.Raw))
	}
	if removes {
		w.removed[w.ownerUID(app)] = o.Key.Name
		w.removedFrom[w.ownerUID(app)] = o.UID
	}
}

// witness sees to it that no copy comes back after its workloads were removed.
func (w *World) witness(key stream.ResourceKey) {
	o, ok := w.spoke().server.Get(key)
	if !ok || w.mode != stream.Managed {
		return
	}
	app := parse(o)
	if app["metadata"].(map[string]any)["deletionTimestamp"] != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if uid := w.ownerUID(app); uid != "" && w.removed[uid] != "" && w.removedFrom[uid] != o.UID {
		w.broken = append(w.broken, fmt.Sprintf("I4: %s came back after its cascade: %s", key.Name, o.Raw))
	}
}

// happened finds out whether the controller's write to o took effect whose reply
// was lost: the operation with that id, or without one the cascade finalizer, is
// gone. Other writers may have come in between.
func (w *World) happened(o backends.Object, id string) bool {
	for w.ctx.Err() == nil {
		now, err := w.spoke().server.Read(w.ctx, o.Key)
		switch {
		case errors.Is(err, stream.ErrNotFound):
			return true
		case err != nil:
			continue
		case now.UID != o.UID:
			return true
		}
		app := parse(now)
		if id == "" {
			return !slices.Contains(list(app["metadata"].(map[string]any)["finalizers"]), any(cascade))
		}
		operation, _ := app["operation"].(map[string]any)
		return operation == nil || commandOf(operation) != id
	}
	return false
}

// ownerUID is the UID of the object that the people own.
func (w *World) ownerUID(app map[string]any) string {
	meta := app["metadata"].(map[string]any)
	if w.mode == stream.Autonomous {
		return meta["uid"].(string)
	}
	annotations, _ := meta["annotations"].(map[string]any)
	uid, _ := annotations["argocd.argoproj.io/source-uid"].(string)
	return uid
}

func (w *World) breaks(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

func retryable(err error) bool {
	return errors.Is(err, stream.ErrConflict) || errors.Is(err, stream.ErrNotFound) || errors.Is(err, stream.ErrUnavailable)
}

func parse(o backends.Object) map[string]any {
	var m map[string]any
	if err := json.Unmarshal(o.Raw, &m); err != nil {
		panic(err)
	}
	return m
}

func text(m map[string]any) []byte {
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return raw
}

func list(v any) []any {
	l, _ := v.([]any)
	return slices.Clone(l)
}

func commandOf(operation map[string]any) string {
	for _, item := range list(operation["info"]) {
		if m, _ := item.(map[string]any); m["name"] == "argomesh.io/command" {
			return m["value"].(string)
		}
	}
	return ""
}
