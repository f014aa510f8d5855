package lease_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A process that was frozen does not know that another had the Lease in between, and finds
// it free. What it began before is not to go on.
func TestAnotherHadTheLeaseInBetween(t *testing.T) {
	for name, asks := range map[string]bool{"a renewal tells": false, "who asks is told": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLeaseEnv(t)
				a := w.start("a", nil)
				w.until(a, time.Second)
				pass(time.Minute)
				if err := a.lease.Confirm(t.Context()); err != nil {
					t.Fatalf("Confirm() = %v while it holds the Lease", err)
				}
				w.server.turn("b")
				w.server.turn("")
				if asks && a.lease.Confirm(t.Context()) == nil {
					t.Error("Confirm() = nil though another had the Lease")
				}
				pass(attemptTime)
				if len(w.terms) != 2 || w.terms[0].end.IsZero() {
					t.Fatalf("there were %d terms, want the end of the first and another one", len(w.terms))
				}
				if err := a.lease.Confirm(t.Context()); err != nil {
					t.Errorf("Confirm() = %v in the second term", err)
				}
				a.stop()
				a.ended(t)
				if err := a.lease.Confirm(t.Context()); err == nil {
					t.Error("Confirm() = nil after the end")
				}
			})
		})
	}
}

// While another holds it Confirm says so, before a renewal could.
func TestConfirmWhileAnotherHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeaseEnv(t)
		a := w.start("a", nil)
		w.until(a, time.Second)
		w.server.turn("b")
		if err := a.lease.Confirm(t.Context()); err == nil {
			t.Error("Confirm() = nil")
		}
		synctest.Wait()
		if w.active() != nil {
			t.Error("its function goes on")
		}
		a.stop()
		a.ended(t)
	})
}

// However many ask, a read that began after they asked is enough for all.
func TestConfirmIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeaseEnv(t)
		a := w.start("a", nil)
		w.until(a, time.Second)
		a.client.gate = make(chan struct{})
		before := a.client.reads.Load()
		ask := func(n int) *sync.WaitGroup {
			var all sync.WaitGroup
			for range n {
				all.Go(func() {
					if err := a.lease.Confirm(t.Context()); err != nil {
						t.Errorf("Confirm() = %v", err)
					}
				})
			}
			synctest.Wait()
			return &all
		}
		first := ask(1)
		others := ask(999)
		impatient, cancel := context.WithCancel(t.Context())
		var gaveUp atomic.Bool
		go func() { gaveUp.Store(errors.Is(a.lease.Confirm(impatient), context.Canceled)) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if !gaveUp.Load() {
			t.Error("who gives up waits on")
		}
		a.client.gate <- struct{}{}
		first.Wait()
		a.client.gate <- struct{}{}
		others.Wait()
		if reads := a.client.reads.Load() - before; reads != 2 {
			t.Errorf("%d reads for 1,000 who asked", reads)
		}
		close(a.client.gate)
		a.client.away.Store(true)
		if err := a.lease.Confirm(t.Context()); !errors.Is(err, errAway) {
			t.Errorf("Confirm() = %v while the API server is away", err)
		}
		a.client.away.Store(false)
		if w.active() != a {
			t.Error("that nobody knows is no loss")
		}
		a.stop()
		a.ended(t)
	})
}
