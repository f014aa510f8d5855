//go:build linux

package main

import (
	"context"
	"sync"

	"github.com/argomesh/argomesh/stream"
)

// past is what a simulated agent keeps of the history of its hub, for each of its hellos, as
// an agent does in a ConfigMap. The zero value is that of one that never met a hub.
type past struct {
	// forgets says that it keeps nothing of what the hub says, so that the hub gives it no
	// further tokens.
	forgets bool

	mu      sync.Mutex // guards what follows
	hub     string
	history stream.History
}

// tell is client.Config.History.
func (p *past) tell(context.Context) (hub string, h stream.History, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hub, p.history, nil
}

// token is the newest one that is kept; empty for none.
func (p *past) token() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.history.Token
}

// remembers is mirror.Config.SaveHistory.
func (p *past) remembers() func(context.Context, string, stream.History) error {
	if p.forgets {
		return nil
	}
	return func(_ context.Context, hub string, h stream.History) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hub, p.history = hub, h
		return nil
	}
}
