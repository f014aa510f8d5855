package lease_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/cmd/internal/lease"
)

// The times that the package promises.
const (
	holdTime  = 15 * time.Second
	renewTime = 10 * time.Second
	// attemptTime is the longest time between two attempts, with its jitter. A Lease
	// expires leaseTime after an attempt saw its last renewal, for the next attempt.
	attemptTime = 4400 * time.Millisecond
)

// term is one run of the function under the Lease.
type term struct {
	process    *process
	began, end time.Time // end is zero while it runs
}

// leaseEnv is an API server and what ran under its Lease. It lives in one bubble.
type leaseEnv struct {
	t      *testing.T
	server *apiServer
	mu     sync.Mutex // guards terms
	terms  []*term
}

func newLeaseEnv(t *testing.T) *leaseEnv { return &leaseEnv{t: t, server: newAPIServer()} }

// process is one that wants the Lease.
type process struct {
	client *client
	lease  *lease.Lease
	// restored is lease.Config's.
	restored func(time.Time)
	stop     context.CancelFunc
	done     chan error
	// lingers is how long its function takes to end.
	lingers time.Duration
	// log is what it logs.
	log bytes.Buffer
	// result is returned by its function once it is closed.
	result chan error
}

// start lets a process want the Lease until the test ends.
func (w *leaseEnv) start(holder string, change func(*process)) *process {
	w.t.Helper()
	p := &process{client: &client{server: w.server}, done: make(chan error, 1), result: make(chan error, 1)}
	if change != nil {
		change(p)
	}
	l, err := lease.New(lease.Config{Leases: p.client, Namespace: "argocd", Name: "argomesh-test", Holder: holder, Restored: p.restored, Log: zerolog.New(zerolog.SyncWriter(&p.log))})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(logr.NewContext(w.t.Context(), logr.Discard()))
	p.lease, p.stop = l, cancel
	go func() { p.done <- l.Run(ctx, func(ctx context.Context) error { return w.run(ctx, p) }) }()
	w.t.Cleanup(cancel)
	return p
}

// run is the function under the Lease. It fails the test when another runs.
func (w *leaseEnv) run(ctx context.Context, p *process) error {
	t := &term{process: p, began: time.Now()}
	w.mu.Lock()
	for _, other := range w.terms {
		if other.end.IsZero() {
			w.t.Error("two run at once")
		}
	}
	w.terms = append(w.terms, t)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		t.end = time.Now()
	}()
	select {
	case err := <-p.result:
		return err
	case <-ctx.Done():
		time.Sleep(p.lingers) //nolint:forbidigo // time of a bubble: this is what it does
		return nil
	}
}

// active is the process whose function runs; nil when there is none.
func (w *leaseEnv) active() *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.terms {
		if t.end.IsZero() {
			return t.process
		}
	}
	return nil
}

// pass lets time go by.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // time of a bubble
	synctest.Wait()
}

// until returns how long it took for p to be active, at most limit.
func (w *leaseEnv) until(p *process, limit time.Duration) time.Duration {
	w.t.Helper()
	began := time.Now()
	for w.active() != p {
		if time.Since(began) > limit {
			w.t.Fatalf("the process is not active after %s", limit)
		}
		pass(10 * time.Millisecond)
	}
	return time.Since(began)
}

func (p *process) ended(t *testing.T) {
	t.Helper()
	if err := <-p.done; err != nil {
		t.Errorf("Run() = %v", err)
	}
}

func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeaseEnv(t)
		a := w.start("a", nil)
		w.until(a, time.Second)
		b := w.start("b", nil)
		pass(time.Hour)
		if w.active() != a || len(w.terms) != 1 {
			t.Errorf("%d terms after an hour, want the one of a", len(w.terms))
		}
		a.stop()
		b.stop()
		a.ended(t)
		b.ended(t)
	})
}

// An ordered stop hands over as soon as the function has ended, and no sooner:
// until then the Lease is held and renewed, however long it takes.
func TestOrderedStopHandsOverAtOnce(t *testing.T) {
	for name, lingers := range map[string]time.Duration{"at once": 0, "after three seconds": 3 * time.Second, "after a minute": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLeaseEnv(t)
				a := w.start("a", func(p *process) { p.lingers = lingers })
				w.until(a, time.Second)
				b := w.start("b", nil)
				pass(time.Minute)
				a.stop()
				if lingers > 0 {
					pass(lingers - time.Millisecond)
					if holder := w.server.holder(); holder != "a" || w.active() != a {
						t.Errorf("the Lease is held by %q while the function of a has not ended", holder)
					}
				}
				if took := w.until(b, holdTime); took > 100*time.Millisecond {
					t.Errorf("b is active %s after a has ended, want at once", took)
				}
				a.ended(t)
				b.stop()
				b.ended(t)
				if holder := w.server.holder(); holder != "" {
					t.Errorf("the Lease is held by %q after all have ended", holder)
				}
			})
		})
	}
}

// Without a watch it is taken over at the next attempt.
func TestHandsOverWithoutWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeaseEnv(t)
		a := w.start("a", nil)
		w.until(a, time.Second)
		b := w.start("b", func(p *process) { p.client.blind.Store(true) })
		pass(time.Minute)
		a.stop()
		a.ended(t)
		w.until(b, attemptTime+100*time.Millisecond)
		b.stop()
		b.ended(t)
	})
}

// A holder that cannot renew ends before another may begin, and does not take
// the Lease from it when it can write again.
func TestHolderThatCannotRenewEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeaseEnv(t)
		a := w.start("a", func(p *process) { p.lingers = 2 * time.Second })
		w.until(a, time.Second)
		b := w.start("b", nil)
		pass(time.Minute)
		a.client.away.Store(true)
		if took := w.until(b, holdTime+2*attemptTime); took < renewTime {
			t.Errorf("b is active after %s, when a may still hold the Lease", took)
		}
		if held := w.terms[0].end.Sub(w.terms[0].began); w.terms[0].end.IsZero() || held > time.Minute+time.Second+renewTime+5*time.Second {
			t.Errorf("the function of a ran for %s, beyond what it held the Lease for", held)
		}
		a.client.away.Store(false)
		pass(time.Hour)
		if w.active() != b || len(w.terms) != 2 {
			t.Error("the Lease did not stay with b")
		}
		b.stop()
		w.until(a, time.Second) // it goes on waiting
		a.stop()
		a.ended(t)
		b.ended(t)
	})
}

// Who comes back under the name it had need not wait: its Lease is its own.
func TestSameHolderComesBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeaseEnv(t)
		killed := w.start("a", nil)
		w.until(killed, time.Second)
		killed.client.away.Store(true) // a process that is killed gives nothing back
		killed.stop()
		killed.ended(t)
		if holder := w.server.holder(); holder != "a" {
			t.Fatalf("the Lease is held by %q, want a: the test shows nothing", holder)
		}
		stranger := w.start("b", nil)
		again := w.start("a", nil)
		if took := w.until(again, time.Second); took > 100*time.Millisecond {
			t.Errorf("it is active after %s", took)
		}
		for _, p := range []*process{stranger, again} {
			p.stop()
			p.ended(t)
		}
	})
}

// An API server that is away does not hold up an ordered stop for long.
func TestReleaseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeaseEnv(t)
		a := w.start("a", nil)
		w.until(a, time.Second)
		a.client.away.Store(true)
		began := time.Now()
		a.stop()
		a.ended(t)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("Run() returned after %s", took)
		}
		b := w.start("b", nil)
		w.until(b, holdTime+2*attemptTime)
		b.stop()
		b.ended(t)
	})
}

func TestFunctionThatEnds(t *testing.T) {
	failed := errors.New("failed")
	for name, result := range map[string]error{"with an error": failed, "without": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newLeaseEnv(t)
				a := w.start("a", nil)
				w.until(a, time.Second)
				b := w.start("b", nil)
				pass(time.Minute)
				a.result <- result
				if err := <-a.done; !errors.Is(err, result) {
					t.Errorf("Run() = %v, want %v", err, result)
				}
				if took := w.until(b, time.Second); took > 100*time.Millisecond {
					t.Errorf("b is active %s after a has ended", took)
				}
				b.stop()
				b.ended(t)
			})
		})
	}
}

// A Lease that cannot be written is not asked for without pause.
func TestAttemptsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeaseEnv(t)
		for _, name := range []string{"a", "b", "c", "d"} {
			p := w.start(name, nil)
			w.until(p, time.Second)
			p.stop()
			p.ended(t)
		}
		a := w.start("a", nil)
		pass(10 * time.Minute)
		if writes := a.client.writes.Load(); writes > 310 {
			t.Errorf("%d writes in ten minutes, want one in two seconds", writes)
		}
		a.stop()
		a.ended(t)
	})
}

// A process whose namespace is missing says so once, and works when the namespace comes.
func TestMissingNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeaseEnv(t)
		p := w.start("a", func(p *process) { p.client.homeless.Store(true) })
		pass(time.Minute)
		if got := w.active(); got != nil {
			t.Error("it works without a Lease")
		}
		p.client.homeless.Store(false)
		w.until(p, 5*time.Second)
		p.stop()
		p.ended(t)
		if n := strings.Count(p.log.String(), "its namespace argocd does not exist; create it"); n != 1 {
			t.Errorf("said %d times, want once:\n%s", n, &p.log)
		}
	})
}

func TestNewChecksItsConfig(t *testing.T) {
	good := lease.Config{Leases: &client{}, Namespace: "argocd", Name: "n", Holder: "a"}
	if _, err := lease.New(good); err != nil {
		t.Fatalf("New() = %v", err)
	}
	for name, change := range map[string]func(*lease.Config){
		"no client":    func(c *lease.Config) { c.Leases = nil },
		"no namespace": func(c *lease.Config) { c.Namespace = "" },
		"no name":      func(c *lease.Config) { c.Name = "" },
		"no holder":    func(c *lease.Config) { c.Holder = "" },
	} {
		cfg := good
		change(&cfg)
		if _, err := lease.New(cfg); err == nil {
			t.Errorf("New() with %s returns no error", name)
		}
	}
}
