package mirror_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/backends/presence"
	"github.com/argomesh/argomesh/stream"
)

// refusing makes the spoke refuse every Application while it is true.
func refusing(refuses *atomic.Bool) func(stream.Side, *mirror.Config) {
	return func(side stream.Side, cfg *mirror.Config) {
		if side == stream.Hub {
			cfg.History = func(context.Context, mirror.Peer, mirror.Known) (mirror.HistoryCheck, error) {
				return mirror.HistoryCheck{Now: stream.History{ID: "h", Token: "t"}, Epoch: 1}, nil
			}
			return
		}
		allowed := policy.Default()
		allowed.Projects = []string{"default"}
		if refuses.Load() {
			allowed.Kinds = nil
		}
		cfg.Rules.Policy = &allowed
	}
}

// A principal that had not the agent's last connection does not know what the spoke
// answered, and leaves alone what tells it: after a restart while the agent is away, and
// beside the one that has the connection. The one that hears another answer changes it.
func TestWhatTheSpokeAnsweredOutlivesThePrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refuses atomic.Bool
		var writes atomic.Int64
		refuses.Store(true)
		count := memory.Config{Fault: func(op memory.Op, _ stream.ResourceKey) error {
			if op != memory.OpRead {
				writes.Add(1)
			}
			return nil
		}}
		first := newPair(t, options{hub: count, configure: refusing(&refuses)})
		first.create(first.hub, "a", nil, spec("one"))
		first.connect()
		pass(time.Second)
		const refused = `agent edge-1 did not apply it: policy.kinds of the spoke does not allow application`
		says := func(r *pair, when, want string) {
			t.Helper()
			if got := conditionOf(r.get(r.hub, "a")); got != want {
				t.Errorf("%s the hub says %q, want %q", when, got, want)
			}
		}
		says(first, "at first", refused)

		stores := [2]*memory.Store{first.hub.store, first.spoke.store}
		writes.Store(0)
		beside := newPair(t, options{stores: stores, configure: refusing(&refuses)})
		pass(10 * time.Minute)
		says(first, "with another principal beside", refused)
		if n := writes.Load(); n > 0 {
			t.Errorf("two principals wrote %d times in 10 minutes", n)
		}
		for _, r := range []*pair{first, beside} {
			r.cancel(nil)
			r.wait.Wait()
		}

		refuses.Store(false)
		next := newPair(t, options{stores: stores, configure: refusing(&refuses)})
		pass(10 * time.Minute)
		says(next, "after a restart while the agent is away", refused)
		next.connect()
		pass(time.Second)
		says(next, "once the spoke has taken it", "")
	})
}

// What a spoke runs is shown for as long as some principal observes the agent, and let go
// when no one has for a while.
func TestOperationOfASpokeThatAnotherPrincipalObserves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refuses atomic.Bool
		r := newPair(t, options{configure: refusing(&refuses)})
		born := m{"initiatedBy": m{"automated": true}, "info": []any{m{"name": "argomesh.io/spoke", "value": "edge-1"}}}
		observed := time.Now()
		r.hub.ShowLink(presence.LinkState{Epoch: 7, ObservedAt: observed})
		rest := spec("one")
		rest["operation"] = born
		r.create(r.hub, "a", nil, rest)
		shown := func(when string, want bool) {
			t.Helper()
			if got := at(r.get(r.hub, "a"), "operation") != nil; got != want {
				t.Errorf("%s it is shown: %v, want %v", when, got, want)
			}
		}
		for range 10 {
			pass(time.Minute)
			observed = observed.Add(time.Minute)
			r.hub.ShowLink(presence.LinkState{Epoch: 7, ObservedAt: observed})
			shown("while another principal observes the agent", true)
		}
		pass(89 * time.Second)
		shown("a moment before it counts as away", true)
		pass(2 * time.Second)
		shown("when nobody has observed the agent for 90 s", false)
	})
}

// A principal whose agent went to another one leaves alone what is the other's.
func TestALinkThatWasTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refuses atomic.Bool
		r := newPair(t, options{configure: refusing(&refuses)})
		r.create(r.hub, "a", nil, spec("one"))
		cut, _ := r.connect()
		pass(time.Second)
		cut()
		r.hub.ShowLink(presence.LinkState{Epoch: 2, ObservedAt: time.Now()})
		born := m{"initiatedBy": m{"automated": true}, "info": []any{m{"name": "argomesh.io/spoke", "value": "edge-1"}}}
		r.update(r.hub, "a", func(app m) {
			app["operation"] = born
			app["status"] = m{"conditions": []any{m{"type": "ArgomeshError", "message": "agent edge-1 did not apply it: too large"}}}
		})
		pass(time.Minute)
		app := r.get(r.hub, "a")
		if at(app, "operation") == nil || conditionOf(app) != "agent edge-1 did not apply it: too large" {
			t.Errorf("the operation is %v, the condition %q", at(app, "operation"), conditionOf(app))
		}
	})
}
