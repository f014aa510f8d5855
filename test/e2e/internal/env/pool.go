//go:build linux

package env

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/broker"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

const (
	// StartTimeout bounds the start of an environment, stopTimeout its end. To start is mostly
	// to wait for the control planes of others.
	StartTimeout = 2 * harness.Patience
	stopTimeout  = harness.Patience
)

// Pool are the environments of one kind: one that tests share, and some for tests that each
// take one to themselves, so that no test waits for those that stop what others need. An
// environment starts for the first test that asks for it and ends when no test is left that
// wants it, since idle servers take processors from the tests that are. Where a broker serves
// the shared one, all programs of one go test have the same. Methods may be called
// concurrently.
type Pool[E any] struct {
	start func(context.Context, *harness.Harness) (E, error)
	wire  *wire[E] // nil for one that is not shared with other programs

	mu      sync.Mutex // guards the fields below
	shared  *Running[E]
	sharing int                // tests that want shared
	slots   int                // for environments of one test that do not run
	waiting []chan *Running[E] // tests that wait for another's
}

// wire is how a program shares an environment with others.
type wire[E any] struct {
	name     string
	describe func(E) any
	attach   func(h *harness.Harness, description []byte) (E, error)
}

// NewPool makes a pool in which nothing runs yet, with so many environments alone for tests
// that take one to themselves.
func NewPool[E any](alone int, start func(context.Context, *harness.Harness) (E, error)) *Pool[E] {
	return &Pool[E]{start: start, slots: alone}
}

// newSharedPool is NewPool for environments of which other programs can have the shared one:
// describe returns what JSON can hold, from which attach makes it there, with the harness of
// that program. name is that of the kind among all.
func newSharedPool[E, D any](name string, alone int, start func(context.Context, *harness.Harness) (E, error), describe func(E) D, attach func(*harness.Harness, D) (E, error)) *Pool[E] {
	p := NewPool(alone, start)
	p.wire = &wire[E]{
		name:     name,
		describe: func(e E) any { return describe(e) },
		attach: func(h *harness.Harness, description []byte) (e E, err error) {
			var d D
			if err := json.Unmarshal(description, &d); err != nil {
				return e, fmt.Errorf("description of environment %s: %w", name, err)
			}
			return attach(h, d)
		},
	}
	return p
}

// share keeps the shared environment for the test. A test that has to wait for something else
// waits afterwards, so that the environment does not end in between.
func (p *Pool[E]) share(t *testing.T) *Running[E] {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shared == nil {
		p.shared = &Running[E]{start: p.start}
		if address := os.Getenv(broker.Variable); address != "" && p.wire != nil {
			p.shared.start = p.shared.attached(address, p.wire)
		}
	}
	p.sharing++
	shared := p.shared
	t.Cleanup(func() { p.leave(t, shared) })
	return shared
}

func (p *Pool[E]) leave(t *testing.T, shared *Running[E]) {
	t.Helper()
	shared.note(t.Failed())
	p.mu.Lock()
	p.sharing--
	last := p.sharing == 0
	if last {
		p.shared = nil
	}
	p.mu.Unlock()
	if last {
		shared.stop(t)
	}
}

// TakeAlone waits for an environment that no other test has until this one ends.
func (p *Pool[E]) TakeAlone(t *testing.T) *Running[E] {
	t.Helper()
	alone := p.acquire()
	t.Cleanup(func() { p.release(t, alone) })
	return alone
}

func (p *Pool[E]) acquire() *Running[E] {
	p.mu.Lock()
	if p.slots > 0 {
		p.slots--
		p.mu.Unlock()
		return &Running[E]{start: p.start}
	}
	next := make(chan *Running[E], 1)
	p.waiting = append(p.waiting, next)
	p.mu.Unlock()
	return <-next
}

func (p *Pool[E]) release(t *testing.T, alone *Running[E]) {
	t.Helper()
	alone.note(t.Failed())
	p.mu.Lock()
	if len(p.waiting) > 0 {
		p.waiting[0] <- alone
		p.waiting = p.waiting[1:]
		p.mu.Unlock()
		return
	}
	p.slots++
	p.mu.Unlock()
	alone.stop(t)
}

// served returns the environment of the pool that other programs attach to, which starts for
// the first of them.
func (p *Pool[E]) served() served {
	r := &Running[E]{start: p.start}
	return served{
		name: p.wire.name,
		describe: func() (any, error) {
			e, err := r.get()
			if err != nil {
				return nil, err
			}
			return p.wire.describe(e), nil
		},
		note: r.note,
		close: func() error {
			logs, err := r.close()
			if logs != "" {
				err = errors.Join(err, fmt.Errorf("a test that used environment %s failed; the logs are in %s", p.wire.name, logs))
			}
			return err
		},
	}
}

// Running is an environment from its start to its end.
type Running[E any] struct {
	start func(context.Context, *harness.Harness) (E, error)
	once  sync.Once
	h     *harness.Harness
	lease *broker.Lease // of what belongs to another program
	env   E
	err   error

	mu     sync.Mutex // guards failed
	failed bool       // a test that used it
}

// attached returns what attaches to the environment that the broker at address serves.
func (r *Running[E]) attached(address string, w *wire[E]) func(context.Context, *harness.Harness) (E, error) {
	return func(ctx context.Context, h *harness.Harness) (e E, err error) {
		if r.lease, err = broker.Take(ctx, address, broker.Request{Kind: kindEnvironment, Name: w.name}); err != nil {
			return e, err
		}
		return w.attach(h, r.lease.Answer)
	}
}

// get returns the environment, started if it was not.
func (r *Running[E]) get() (E, error) {
	r.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
		defer cancel()
		if r.h, r.err = harnesstest.Open(); r.err == nil {
			r.env, r.err = r.start(ctx, r.h)
		}
	})
	return r.env, r.err
}

// Get returns the environment, started if it was not.
func (r *Running[E]) Get(t *testing.T) E {
	t.Helper()
	e, err := r.get()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// note keeps that a test failed which used it.
func (r *Running[E]) note(failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
}

// close ends the environment, which no test uses any more. Its logs stay when one that did has
// failed; logs then says where.
func (r *Running[E]) close() (logs string, err error) {
	r.mu.Lock()
	failed := r.failed
	r.mu.Unlock()
	if r.h != nil {
		logs, err = harnesstest.End(r.h, stopTimeout, failed)
	}
	if r.lease != nil {
		r.lease.Release(failed)
	}
	return logs, err
}

func (r *Running[E]) stop(t *testing.T) {
	t.Helper()
	logs, err := r.close()
	if err != nil {
		t.Error(err)
	}
	if logs != "" {
		t.Logf("the logs are in %s", logs)
	}
}
