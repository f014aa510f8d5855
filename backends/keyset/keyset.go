// Package keyset collects what changed, for one reader that looks at each of it once, however
// often it changed in between.
package keyset

import (
	"context"
	"slices"
	"sync"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/internal/notify"
	"github.com/argomesh/argomesh/stream"
)

// Set collects keys until they are drained. It holds each key once, so it is bounded by the
// number of things that have one. Its methods may be called concurrently; New makes one.
type Set[K comparable] struct {
	// Signal has a value while there are keys: receive from it, then Drain.
	Signal <-chan struct{}
	signal notify.Signal
	mu     sync.Mutex // guards keys and seen
	keys   []K
	seen   map[K]bool
}

// New returns an empty Set.
func New[K comparable]() *Set[K] {
	signal := notify.NewSignal()
	return &Set[K]{Signal: signal, signal: signal, seen: map[K]bool{}}
}

// Add does not block.
func (s *Set[K]) Add(key K) {
	s.mu.Lock()
	if !s.seen[key] {
		s.seen[key] = true
		s.keys = append(s.keys, key)
	}
	s.mu.Unlock()
	s.signal.Notify()
}

// Drain empties the set and returns what was in it, the key that was added first at first.
func (s *Set[K]) Drain() []K {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := s.keys
	s.keys, s.seen = nil, map[K]bool{}
	return keys
}

// Follow collects the objects of these kinds that change in a store from now on, until cancel
// is called. It returns once the store is synced; false when ctx is done before.
func Follow(ctx context.Context, store backends.Store,
	kinds ...stream.Kind) (changed *Set[stream.ResourceKey], cancel func(), synced bool) {
	changed = New[stream.ResourceKey]()
	cancel = store.Subscribe(func(key stream.ResourceKey) {
		if slices.Contains(kinds, key.Kind) {
			changed.Add(key)
		}
	})
	select {
	case <-ctx.Done():
		return changed, cancel, false
	case <-store.Synced():
		return changed, cancel, true
	}
}
