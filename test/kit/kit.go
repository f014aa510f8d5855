// Package kit is what tests of many packages need: names, waiting, and what was logged. It is
// imported by tests and by programs that test.
package kit

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/argomesh/argomesh/identity"
)

// Patience is how long a test waits for what comes soon when all is well.
const Patience = 30 * time.Second

// poll is how often a condition is looked at that no one announces.
const poll = 5 * time.Millisecond

// Agent returns the name of an agent.
func Agent(t testing.TB, text string) identity.AgentName {
	t.Helper()
	name, err := identity.ParseAgentName(text)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// Context returns a context that ends with the test, or after [Patience].
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Start runs f until ctx is done or stop is called, which waits for f and returns its error.
func Start(ctx context.Context, f func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-done
	})
}

// Background runs f until the test ends, or until stop is called, in the reverse order of
// the calls. The test fails when f returns an error, or does not return.
func Background(t testing.TB, f func(context.Context) error) (stop func()) {
	t.Helper()
	end := Start(context.Background(), f) // t.Context ends before what is stopped in order
	stop = sync.OnceFunc(func() {
		done := make(chan error, 1)
		go func() { done <- end() }()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run() = %v", err)
			}
		case <-time.After(Patience):
			t.Error("Run() does not return")
		}
	})
	t.Cleanup(stop)
	return stop
}

// Server is what a *grpc.Server does. Serve returns nil after Stop.
type Server interface {
	Serve(l net.Listener) error
	Stop()
}

// Serve has a server serve l until the test ends.
func Serve(t testing.TB, server Server, l net.Listener) {
	t.Helper()
	Background(t, func(ctx context.Context) error {
		defer context.AfterFunc(ctx, server.Stop)()
		return server.Serve(l)
	})
}

// MostWithin is the largest number of times that lie within one span, however it is placed.
// The times are in order.
func MostWithin(times []time.Time, span time.Duration) int {
	most := 0
	for first, last := 0, 0; last < len(times); last++ {
		for times[last].Sub(times[first]) >= span {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

// Eventually waits for a condition that no one announces.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	look := time.NewTicker(poll)
	defer look.Stop()
	for ctx := Context(t); !holds(); {
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// EventuallyNil waits until check returns nil.
func EventuallyNil(t testing.TB, what string, check func() error) {
	t.Helper()
	look := time.NewTicker(poll)
	defer look.Stop()
	for ctx := Context(t); ; {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("waited for %s: %v", what, err)
		}
	}
}
