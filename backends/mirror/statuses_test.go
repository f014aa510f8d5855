package mirror_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

// reconcile stands in for Argo CD's controller on the spoke, when it finds that
// nothing changed.
func (r *rig) reconcile(name string) string {
	r.t.Helper()
	now := time.Now().UTC().Format(time.RFC3339)
	r.update(r.spoke, name, func(app m) {
		status, _ := app["status"].(m)
		if status == nil {
			status = m{"health": m{"status": "Healthy"}}
			app["status"] = status
		}
		status["reconciledAt"] = now
	})
	return now
}

func (r *rig) reconciledAt(name string) any {
	r.t.Helper()
	return at(r.get(r.hub, name), "status", "reconciledAt")
}

func TestReconciliationTimeMayWaitAndIsNeverLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		cut, _ := r.connect()
		r.create(r.hub, "a", nil, spec("one"))
		pass(time.Second)
		first := r.reconcile("a")
		pass(time.Millisecond)
		if got := r.reconciledAt("a"); got != first {
			t.Fatalf("the first status is not there at once: %v", got)
		}
		var last string
		for range 9 {
			pass(time.Second)
			last = r.reconcile("a")
		}
		if got := r.reconciledAt("a"); got != first {
			t.Errorf("a reconciliation that changed nothing did not wait: %v", got)
		}
		if r.stats(r.spoke).Agreed {
			t.Error("the spoke claims to agree while it holds something back")
		}
		pass(2 * time.Second)
		if got := r.reconciledAt("a"); got != last {
			t.Errorf("after ten seconds the hub shows %v, want the newest, %s", got, last)
		}
		if !r.stats(r.spoke).Agreed {
			t.Error("the spoke does not agree with what it told")
		}

		held := r.reconcile("a")
		pass(time.Second)
		r.update(r.spoke, "a", func(app m) { app["status"].(m)["health"] = m{"status": "Degraded"} })
		pass(time.Millisecond)
		app := r.get(r.hub, "a")
		if at(app, "status", "health", "status") != "Degraded" || at(app, "status", "reconciledAt") != held {
			t.Errorf("a change that matters did not take along what was held back: %v", app["status"])
		}

		// What is held back is told on whatever connection there is then.
		pass(time.Minute)
		held = r.reconcile("a")
		pass(time.Second)
		if r.reconciledAt("a") == held {
			t.Error("after a pause a reconciliation that changed nothing did not wait")
		}
		cut()
		pass(time.Second)
		r.connect()
		pass(10 * time.Second)
		if got := r.reconciledAt("a"); got != held {
			t.Errorf("after a new connection the hub shows %v, want %s", got, held)
		}
	})
}

// TestReconciliationAfterAnOperationDoesNotWait: the CLI and RollingSync go on
// only when they see it.
func TestReconciliationAfterAnOperationDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		r.connect()
		r.create(r.hub, "a", nil, spec("one"))
		pass(time.Second)
		r.reconcile("a")
		pass(time.Minute)
		r.update(r.hub, "a", func(app m) { app["operation"] = m{"sync": m{}} })
		pass(time.Second)
		r.update(r.spoke, "a", func(app m) {
			now := time.Now().UTC().Format(time.RFC3339)
			app["status"].(m)["operationState"] = m{
				"operation": app["operation"], "phase": "Succeeded", "startedAt": now, "finishedAt": now,
			}
			delete(app, "operation")
		})
		pass(time.Second)
		reconciled := r.reconcile("a")
		pass(time.Millisecond)
		if got := r.reconciledAt("a"); got != reconciled {
			t.Errorf("the reconciliation after the operation waits: the hub shows %v, want %s", got, reconciled)
		}
	})
}

// TestHeldBackIsNoRepair: what is held back is not a difference to the other side.
// Ten minutes of heartbeats, and reconciliations in between, ask for no buckets.
func TestHeldBackIsNoRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var repairs, statuses, batches atomic.Int64
		r := newRig(t, options{watch: func(msg stream.Message) {
			switch msg := msg.(type) {
			case stream.Buckets:
				repairs.Add(1)
			case stream.Batch:
				if msg.Events[0].Key.Collection == stream.Statuses {
					batches.Add(1)
					statuses.Add(int64(len(msg.Events)))
				}
			}
		}})
		r.connect()
		r.create(r.hub, "a", nil, spec("one"))
		pass(time.Second)
		r.reconcile("a")
		pass(time.Second)
		statuses.Store(0)
		for range 600 {
			r.reconcile("a")
			pass(time.Second)
		}
		if repairs.Load() != 0 {
			t.Errorf("%d repairs", repairs.Load())
		}
		// Each of up to ten seconds and a bit begins with a change that waits.
		if got := statuses.Load(); got < 50 || got > 60 {
			t.Errorf("%d events for 600 reconciliations of ten minutes, want one in ten seconds", got)
		}
	})
}

// TestIdleApplicationsCost measures a quarter of an hour of 100 idle Applications. Argo CD
// reconciles each every three minutes, spread evenly, and here once more four
// seconds later, as after a change of a resource that changed nothing.
func TestIdleApplicationsCost(t *testing.T) {
	type cost struct{ events, batches, writes int64 }
	measure := func(t *testing.T, delay time.Duration) (c cost) {
		synctest.Test(t, func(t *testing.T) {
			var events, batches, writes atomic.Int64
			r := newRig(t, options{
				statusDelay: delay,
				watch: func(msg stream.Message) {
					if b, ok := msg.(stream.Batch); ok && b.Events[0].Key.Collection == stream.Statuses {
						batches.Add(1)
						events.Add(int64(len(b.Events)))
					}
				},
				hub: memory.Config{Fault: func(op memory.Op, _ stream.ResourceKey) error {
					if op == memory.OpUpdate {
						writes.Add(1)
					}
					return nil
				}},
			})
			r.connect()
			name := func(i int) string { return fmt.Sprint("a-", i) }
			for i := range 100 {
				r.create(r.hub, name(i), nil, spec("one"))
			}
			pass(time.Second)
			for i := range 100 {
				r.reconcile(name(i))
			}
			pass(time.Minute)
			events.Store(0)
			batches.Store(0)
			writes.Store(0)
			for second := range 900 {
				for i := range 100 {
					if due := i * 180 / 100; second%180 == due || second%180 == (due+4)%180 {
						r.reconcile(name(i))
					}
				}
				pass(time.Second)
			}
			pass(time.Minute)
			c = cost{events.Load(), batches.Load(), writes.Load()}
		})
		return c
	}
	without, with := measure(t, -1), measure(t, 0)
	t.Logf("events, batches and writes on the hub in a quarter of an hour: without delay %v, with %v", without, with)
	if without.events != 1000 || without.writes != 1000 {
		t.Errorf("without delay %+v, want an event and a write for each of 1000 reconciliations", without)
	}
	if with.events > 800 || with.batches > 100 || with.writes != with.events {
		t.Errorf("with delay %+v", with)
	}
}
