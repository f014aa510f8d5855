package mirror_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/stream"
)

// slowStore is a store whose answers about Applications may be a while on their way.
type slowStore struct {
	*memory.Store
	answered func(context.Context) error
}

func (s slowStore) Read(ctx context.Context, key stream.ResourceKey) (backends.Object, error) {
	o, err := s.Store.Read(ctx, key)
	if key.Kind == stream.Application {
		if err := s.answered(ctx); err != nil {
			return backends.Object{}, err
		}
	}
	return o, err
}

// takenOver is a pair whose hub takes the agent's link over from others, the last of which had
// it with the epoch that other says.
func takenOver(t *testing.T, hub memory.Config, other *atomic.Int64, watch func(stream.Message), answered func(context.Context) error) *pair {
	t.Helper()
	return newPair(t, options{
		hub: hub, watch: watch, before: func(hub, _ *memory.Store) { hub.Deliver(-1) },
		configure: func(side stream.Side, cfg *mirror.Config) {
			cfg.Tracer = trace.NewTracerProvider(trace.WithSampler(trace.AlwaysSample())).Tracer("")
			if side == stream.Hub {
				cfg.Store = slowStore{cfg.Store.(*memory.Store), answered}
				cfg.History = func(context.Context, mirror.Peer, mirror.Known) (mirror.HistoryCheck, error) {
					return mirror.HistoryCheck{Now: stream.History{ID: "h", Token: "t"}, Epoch: other.Load() + 1, Other: other.Load()}, nil
				}
			}
		},
	})
}

// TestProofFromBefore: what was asked before another principal had the link says nothing of
// what that did, when the answer comes late.
func TestProofFromBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var other atomic.Int64
		late := make(chan struct{})
		r := takenOver(t, memory.Config{Lag: true}, &other, nil, func(ctx context.Context) error {
			select {
			case <-late:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		r.create(r.hub, "app", nil, spec("one"))
		r.hub.store.Deliver(-1)
		other.Store(1)
		cut, _ := r.connect()
		pass(time.Second)
		cut()
		pass(time.Second)
		other.Store(3)
		r.remove(r.hub, "app") // as the other principal has it: the cache does not show it
		r.connect()
		pass(time.Second)
		close(late)
		pass(time.Minute)
		if apps := r.spoke.store.List(stream.Application, ""); len(apps) != 0 {
			t.Errorf("the spoke has %d Applications of what is gone", len(apps))
		}
	})
}

// TestProofAfterARestore: the API server has another object than the cache, and an older
// one. It is not asked without a pause until the cache follows.
func TestProofAfterARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var other, reads atomic.Int64
		other.Store(1)
		const most = 100
		r := takenOver(t, memory.Config{Lag: true}, &other, nil, func(ctx context.Context) error {
			if reads.Add(1) < most {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		r.create(r.hub, "app", nil, spec("one"))
		backup := r.hub.store.Snapshot()
		r.remove(r.hub, "app")
		r.create(r.hub, "app", nil, spec("two"))
		r.hub.store.Deliver(-1)
		r.hub.store.Restore(backup, 0)
		r.connect()
		pass(10 * time.Second)
		if got := reads.Load(); got == 0 || got > 15 {
			t.Errorf("%d reads in 10 s, want one in a second", got)
		}
		r.hub.store.Deliver(-1)
		pass(10 * time.Second)
		if got := at(r.get(r.spoke, "app"), "spec", "source").(m)["path"]; got != "one" {
			t.Errorf("the spoke has path %v, want what was restored", got)
		}
	})
}

// TestProofKeepsTheTrace: what is read before it is sent goes with the trace of its change.
func TestProofKeepsTheTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var other atomic.Int64
		other.Store(1)
		events, traced := 0, 0
		r := takenOver(t, memory.Config{}, &other, func(msg stream.Message) {
			batch, _ := msg.(stream.Batch)
			for _, e := range batch.Events {
				if e.Key.Collection == stream.Applications {
					events++
					if e.TraceParent != "" {
						traced++
					}
				}
			}
		}, func(context.Context) error { return nil })
		r.connect()
		pass(time.Second)
		r.create(r.hub, "app", nil, spec("one"))
		pass(time.Second)
		if events != 1 || traced != 1 {
			t.Errorf("%d of %d events are of a trace, want 1 of 1", traced, events)
		}
	})
}
