// Package concurrency bounds the live calls under way, in all and of each agent.
package concurrency

import (
	"context"
	"fmt"
	"sync"

	"github.com/argomesh/argomesh/identity"
)

// reserved is how many calls to each agent may be under way whatever those to others
// are.
const reserved = 4

// Limiter bounds the calls under way, in all and of each agent. The first few of an agent
// do not count among all, so that agents whose calls hang, however many, leave some
// for the others.
type Limiter struct {
	all, each int

	mu      sync.Mutex // guards what follows
	total   int
	beyond  int // calls that are not the reserved ones of their agent
	byAgent map[identity.AgentName]int
	emptied chan struct{} // closed when total is 0 again; nil while no one waits
}

// New returns a Limiter for all calls beyond the reserved ones, and for each agent. Its
// methods may be called concurrently.
func New(all, each int) *Limiter {
	return &Limiter{all: all, each: each, byAgent: map[identity.AgentName]int{}}
}

// Acquire counts a call in. When there is no room it returns why, for people.
func (g *Limiter) Acquire(name identity.AgentName) (refusal string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.byAgent[name] >= g.each:
		return "too many calls to this agent are under way"
	case g.byAgent[name] >= reserved && g.beyond >= g.all:
		return "too many calls are under way"
	}
	if g.byAgent[name] >= reserved {
		g.beyond++
	}
	g.total++
	g.byAgent[name]++
	return ""
}

// Release counts a call out that Acquire let in.
func (g *Limiter) Release(name identity.AgentName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.total--; g.total == 0 && g.emptied != nil {
		close(g.emptied)
		g.emptied = nil
	}
	if g.byAgent[name]--; g.byAgent[name] >= reserved {
		g.beyond--
	}
	if g.byAgent[name] == 0 {
		delete(g.byAgent, name)
	}
}

// Count returns the number of calls under way.
func (g *Limiter) Count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.total
}

// Wait waits until no call is under way.
func (g *Limiter) Wait(ctx context.Context) error {
	g.mu.Lock()
	if g.total == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.emptied == nil {
		g.emptied = make(chan struct{})
	}
	emptied := g.emptied
	g.mu.Unlock()
	select {
	case <-emptied:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d calls did not end: %w", g.Count(), ctx.Err())
	}
}
