package mirror_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/quota"
	"github.com/argomesh/argomesh/test/kit"
)

// TestTurnsOfAPeerAtTheProcessors: what a peer says that has had the hub compute a lot is
// worked on when it is that peer's turn, and what another one says before that. While the
// API server is at a write the turn is another's.
func TestTurnsOfAPeerAtTheProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // of which half is one
	for name, c := range map[string]struct {
		used  time.Duration
		waits bool
	}{
		"one that has computed a lot": {time.Second, true},
		"one that has not":            {0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, err := quota.New(nil)
				if err != nil {
					t.Fatal(err)
				}
				other := kit.Agent(t, "other")
				var writes atomic.Int64
				o := options{mode: stream.Autonomous, configure: func(side stream.Side, cfg *mirror.Config) {
					if side == stream.Hub {
						cfg.Quota = q
					}
				}}
				o.hub.Fault = func(op memory.Op, key stream.ResourceKey) error {
					if key.Name != "app" || op != memory.OpCreate && op != memory.OpUpdate {
						return nil
					}
					if writes.Add(1); c.waits {
						q.Spend(other, time.Second)
						q.Compute(other).End() // for ever, if the worker had the turn
					}
					return nil
				}
				r := newPair(t, o)
				a := r.attack(r.hub)
				q.Spend(kit.Agent(t, "edge-1"), c.used)
				q.Spend(other, time.Second)
				turn := q.Compute(other)
				var version atomic.Int64
				e := a.rewrite("app", 100, &version)
				a.say(stream.Batch{Events: []stream.Event{e}})
				pass(time.Second)
				if _, answered := a.results()[e.ID]; answered == c.waits {
					t.Errorf("it is answered: %v, while another one has the turn", answered)
				}
				turn.End()
				pass(time.Second)
				if _, answered := a.results()[e.ID]; !answered || writes.Load() == 0 {
					t.Errorf("in its turn it is answered: %v, after %d writes", answered, writes.Load())
				}
			})
		})
	}
}
