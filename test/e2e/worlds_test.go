//go:build linux

package e2e

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// worldStart bounds the start of a world, worldStop its end. To start is mostly to wait
// for the control planes of others.
const (
	worldStart = 15 * time.Minute
	worldStop  = 5 * time.Minute
)

// worlds are the worlds of one kind: one that tests share, and some for tests that each
// take one to themselves, so that nobody waits for those who stop what others need. A
// world starts for the first test that asks for it and ends when no test is left that
// wants it, since idle servers take processors from the tests that are.
type worlds[W any] struct {
	start func(context.Context, *harness.Harness) (W, error)

	mu      sync.Mutex // guards the fields below
	shared  *running[W]
	sharing int                // tests that want shared
	places  int                // for worlds of one test that do not run
	waiting []chan *running[W] // tests that wait for another's
}

// newWorlds makes worlds, none of which runs yet, alone of them for tests that take one
// to themselves.
func newWorlds[W any](alone int, start func(context.Context, *harness.Harness) (W, error)) *worlds[W] {
	return &worlds[W]{start: start, places: alone}
}

// share keeps the shared world for the test. A test that has to wait for something else
// waits afterwards, so that the world does not end in between.
func (w *worlds[W]) share(t *testing.T) *running[W] {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shared == nil {
		w.shared = &running[W]{start: w.start}
	}
	w.sharing++
	world := w.shared
	t.Cleanup(func() { w.leave(t, world) })
	return world
}

func (w *worlds[W]) leave(t *testing.T, world *running[W]) {
	t.Helper()
	world.note(t.Failed())
	w.mu.Lock()
	w.sharing--
	last := w.sharing == 0
	if last {
		w.shared = nil
	}
	w.mu.Unlock()
	if last {
		world.stop(t)
	}
}

// takeAlone waits for a world that no other test has until this one ends.
func (w *worlds[W]) takeAlone(t *testing.T) *running[W] {
	t.Helper()
	world := w.acquire()
	t.Cleanup(func() { w.release(t, world) })
	return world
}

func (w *worlds[W]) acquire() *running[W] {
	w.mu.Lock()
	if w.places > 0 {
		w.places--
		w.mu.Unlock()
		return &running[W]{start: w.start}
	}
	next := make(chan *running[W], 1)
	w.waiting = append(w.waiting, next)
	w.mu.Unlock()
	return <-next
}

func (w *worlds[W]) release(t *testing.T, world *running[W]) {
	t.Helper()
	world.note(t.Failed())
	w.mu.Lock()
	if len(w.waiting) > 0 {
		w.waiting[0] <- world
		w.waiting = w.waiting[1:]
		w.mu.Unlock()
		return
	}
	w.places++
	w.mu.Unlock()
	world.stop(t)
}

// running is a world from its start to its end.
type running[W any] struct {
	start func(context.Context, *harness.Harness) (W, error)
	once  sync.Once
	h     *harness.Harness
	world W
	err   error

	mu     sync.Mutex // guards failed
	failed bool       // a test that used it
}

// get returns the world, started if it was not.
func (r *running[W]) get(t *testing.T) W {
	t.Helper()
	r.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), worldStart)
		defer cancel()
		if r.h, r.err = harnesstest.Open(); r.err == nil {
			r.world, r.err = r.start(ctx, r.h)
		}
	})
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.world
}

func (r *running[W]) note(failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
}

// stop ends the world, which no test uses any more. Its logs stay when one that did has
// failed.
func (r *running[W]) stop(t *testing.T) {
	t.Helper()
	if r.h != nil {
		harnesstest.Close(t, r.h, worldStop, r.failed)
	}
}
