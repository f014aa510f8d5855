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
func (r *pair) reconcile(name string) string {
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

func (r *pair) reconciledAt(name string) any {
	r.t.Helper()
	return at(r.get(r.hub, name), "status", "reconciledAt")
}

// TestReconciliationTimeIsThinned: what moves the time of the last reconciliation and
// nothing else is told once in ten minutes, and then may wait ten seconds more. What is
// thinned counts as agreed.
func TestReconciliationTimeIsThinned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{})
		cut, _ := r.connect()
		r.create(r.hub, "a", nil, spec("one"))
		pass(time.Second)
		first := r.reconcile("a")
		pass(time.Millisecond)
		if got := r.reconciledAt("a"); got != first {
			t.Fatalf("the first status is not there at once: %v", got)
		}
		for range 9 {
			pass(time.Minute)
			r.reconcile("a")
		}
		pass(20 * time.Second)
		if got := r.reconciledAt("a"); got != first {
			t.Errorf("within ten minutes the hub shows %v, want %s", got, first)
		}
		if !r.stats(r.spoke).Agreed || !r.stats(r.hub).Agreed {
			t.Error("what is thinned does not count as agreed")
		}

		pass(time.Minute)
		tenth := r.reconcile("a")
		pass(time.Second)
		if got := r.reconciledAt("a"); got != first {
			t.Errorf("a reconciliation that changed nothing did not wait: %v", got)
		}
		if r.stats(r.spoke).Agreed {
			t.Error("the spoke claims to agree while it holds something back")
		}
		pass(10 * time.Second)
		if got := r.reconciledAt("a"); got != tenth {
			t.Errorf("after ten minutes the hub shows %v, want %s", got, tenth)
		}
		if !r.stats(r.spoke).Agreed {
			t.Error("the spoke does not agree with what it told")
		}

		thinned := r.reconcile("a")
		pass(time.Second)
		r.update(r.spoke, "a", func(app m) { app["status"].(m)["health"] = m{"status": "Degraded"} })
		pass(time.Millisecond)
		app := r.get(r.hub, "a")
		if at(app, "status", "health", "status") != "Degraded" || at(app, "status", "reconciledAt") != thinned {
			t.Errorf("a change that matters did not take along what was thinned: %v", app["status"])
		}

		// What is held back is told on whatever connection there is then.
		pass(11 * time.Minute)
		held := r.reconcile("a")
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

// TestSinkThinsByItself: a source that tells each reconciliation, as a stolen spoke or an
// earlier release does, costs no write for it either, and both sides agree.
func TestSinkThinsByItself(t *testing.T) {
	for name, children := range map[string]bool{"a copy": false, "a child application": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var writes atomic.Int64
				r := newPair(t, options{children: children, statusDelay: -1, hub: memory.Config{Fault: func(op memory.Op, _ stream.ResourceKey) error {
					if op == memory.OpUpdate {
						writes.Add(1)
					}
					return nil
				}}})
				cut, _ := r.connect()
				if children {
					r.child("a")
				} else {
					r.create(r.hub, "a", nil, spec("one"))
				}
				pass(time.Second)
				r.reconcile("a")
				pass(time.Second)
				writes.Store(0)
				for i := range 61 {
					pass(20 * time.Second)
					r.reconcile("a")
					if i == 10 { // nothing is repaired for it
						cut()
						cut, _ = r.connect()
					}
				}
				pass(time.Second)
				if got := writes.Load(); got != 2 {
					t.Errorf("%d writes for reconciliations of 20 minutes, want 2", got)
				}
				if h, s := r.stats(r.hub), r.stats(r.spoke); !h.Agreed || !s.Agreed {
					t.Errorf("hub %+v, spoke %+v", h, s)
				}
				cut()
			})
		})
	}
}

// TestReconciliationAfterAnOperationDoesNotWait: the CLI and RollingSync go on
// only when they see it.
func TestReconciliationAfterAnOperationDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPair(t, options{})
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
		r := newPair(t, options{watch: func(msg stream.Message) {
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
		if got := statuses.Load(); got > 1 {
			t.Errorf("%d events for 600 reconciliations of ten minutes", got)
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
			r := newPair(t, options{
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
	if without.events != 1000 || without.writes > 200 {
		t.Errorf("without delay %+v, want an event for each of 1000 reconciliations, and a write in ten minutes", without)
	}
	if with.events > 200 || with.batches > 100 || with.writes != with.events {
		t.Errorf("with delay %+v", with)
	}
}
