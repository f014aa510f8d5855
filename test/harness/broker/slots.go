//go:build linux

package broker

import (
	"context"
	"slices"
	"sync"
)

// Slots are for tests that keep servers busy: as many as there are may at a time. The zero
// value has none. Methods may be called concurrently.
type Slots struct {
	mu      sync.Mutex // guards the fields below
	limit   int
	taken   int
	held    map[string]*slot // by the name of the test
	waiting []*slot          // in the order of their coming
	begun   []string         // what tests with a slot share, in the order of the first
}

// slot is that of a test and its subtests.
type slot struct {
	shares string
	users  int
	taken  chan struct{} // closed once it is
}

// NewSlots returns n slots.
func NewSlots(n int) *Slots { return &Slots{limit: n, held: map[string]*slot{}} }

// SetLimit says how many slots there are from now on. Who has one keeps it.
func (b *Slots) SetLimit(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = n
	b.give()
}

// Take waits for a slot for the test, and returns what gives it back. shares names the
// servers that the test shares with others; empty means that it has its own. Tests that
// share what was begun first come first, so that it is done with early and ends. Anyone who
// takes one for the same test again shares the slot, so that no subtest waits for its own
// parent. It fails when ctx is done.
func (b *Slots) Take(ctx context.Context, test, shares string) (release func(), err error) {
	p := b.join(test, shares)
	release = sync.OnceFunc(func() { b.leave(test, p) })
	select {
	case <-p.taken:
		return release, nil
	case <-ctx.Done():
		release()
		return nil, context.Cause(ctx)
	}
}

func (b *Slots) join(test, shares string) *slot {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.held[test]
	if p == nil {
		p = &slot{shares: shares, taken: make(chan struct{})}
		b.held[test] = p
		b.waiting = append(b.waiting, p)
		b.give()
	}
	p.users++
	return p
}

func (b *Slots) leave(test string, p *slot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.users--; p.users > 0 {
		return
	}
	delete(b.held, test)
	if i := slices.Index(b.waiting, p); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		return
	}
	b.taken--
	b.give()
}

// give gives free slots to those who wait.
func (b *Slots) give() {
	for b.taken < b.limit && len(b.waiting) > 0 {
		next := 0
		for i, p := range b.waiting {
			if b.rank(p) < b.rank(b.waiting[next]) {
				next = i
			}
		}
		p := b.waiting[next]
		b.waiting = slices.Delete(b.waiting, next, next+1)
		if p.shares != "" && !slices.Contains(b.begun, p.shares) {
			b.begun = append(b.begun, p.shares)
		}
		b.taken++
		close(p.taken)
	}
}

// rank is lower for tests that come earlier.
func (b *Slots) rank(p *slot) int {
	if i := slices.Index(b.begun, p.shares); i >= 0 {
		return i
	}
	return len(b.begun)
}

// Waiting returns how many tests wait.
func (b *Slots) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}
