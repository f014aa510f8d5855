package main

import (
	"maps"
	"slices"
	"sync"

	"github.com/argomesh/argomesh/identity"
)

// marks are agents that somebody is to look at, each once, however often it was marked
// since. Its methods may be called concurrently.
type marks struct {
	signal chan struct{} // has a value when there are any

	mu    sync.Mutex // guards names
	names map[identity.AgentName]struct{}
}

func newMarks() *marks {
	return &marks{signal: make(chan struct{}, 1), names: map[identity.AgentName]struct{}{}}
}

// add does not block.
func (m *marks) add(name identity.AgentName) {
	m.mu.Lock()
	m.names[name] = struct{}{}
	m.mu.Unlock()
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// take returns those that were added since the last time.
func (m *marks) take() []identity.AgentName {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := slices.Collect(maps.Keys(m.names))
	clear(m.names)
	return names
}
