//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/argomesh/argomesh/backends"
)

// arrivals waits until n different things have come. Its methods may be called
// concurrently.
type arrivals struct {
	n    int
	done chan struct{}

	mu   sync.Mutex // guards seen
	seen map[string]struct{}
}

func newArrivals(n int) *arrivals {
	return &arrivals{n: n, done: make(chan struct{}), seen: make(map[string]struct{}, n)}
}

// add takes note of one; a second time it is ignored.
func (a *arrivals) add(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.seen[name]; known || len(a.seen) == a.n {
		return
	}
	a.seen[name] = struct{}{}
	if len(a.seen) == a.n {
		close(a.done)
	}
}

// count is how many have come.
func (a *arrivals) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.seen)
}

// wait returns when all have come.
func (a *arrivals) wait(ctx context.Context) error {
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		a.mu.Lock()
		defer a.mu.Unlock()
		return fmt.Errorf("%d of %d came: %w", len(a.seen), a.n, context.Cause(ctx))
	}
}

// isSynced reports whether an Application has a status of package bench.
func isSynced(o backends.Object) bool { return bytes.Contains(o.Raw, []byte(`"status":"Synced"`)) }
