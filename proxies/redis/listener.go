package redis

import (
	"context"
	"sync"
	"time"

	"github.com/argomesh/argomesh/identity"
)

// message is what a caller is told, under its own name for the channel.
type message struct {
	channel, payload string
	at               time.Time
}

// listener is a caller as subscribers of agents know it.
type listener struct {
	hub   *Hub
	spawn spawn
	ready chan struct{} // has a value when there are messages

	mu      sync.Mutex // guards what follows
	waiting []message
	bytes   int
	slow    bool
	joined  map[string]joined // by the caller's name of the channel
}

// joined is a channel at an agent.
type joined struct {
	at      *subscriber
	channel string
}

func newListener(h *Hub, spawn spawn) *listener {
	return &listener{hub: h, spawn: spawn, ready: make(chan struct{}, 1), joined: map[string]joined{}}
}

// deliver queues a message. One that waits already does for another like it.
func (l *listener) deliver(m message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.waiting {
		if w.channel == m.channel && w.payload == m.payload {
			return
		}
	}
	if len(l.waiting) == maxMessages || l.bytes+len(m.payload) > maxMessageBytes {
		l.slow = true
	} else {
		l.waiting, l.bytes = append(l.waiting, m), l.bytes+len(m.payload)
	}
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

// take returns the messages that wait, and false when there were too many.
func (l *listener) take() ([]message, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.waiting
	l.waiting, l.bytes = nil, 0
	return m, !l.slow
}

// attach subscribes to an agent's channel, known to the caller by name, and waits a
// moment for the agent to confirm.
func (l *listener) attach(ctx context.Context, name string, agent identity.AgentName, channel string) {
	s := l.hub.remote(agent).subscriber
	l.mu.Lock()
	_, had := l.joined[name]
	l.joined[name] = joined{s, channel}
	l.mu.Unlock()
	if had {
		return
	}
	l.hub.metrics.subscriptions.Inc()
	t := s.join(l, name, channel)
	patience := time.NewTimer(confirmWait)
	defer patience.Stop()
	select {
	case <-t.settled:
	case <-ctx.Done():
	case <-patience.C:
		s.despair()
	}
	s.confirmed(t, l)
}

// detach ends a subscription, if the channel is an agent's.
func (l *listener) detach(name string) {
	l.mu.Lock()
	j, had := l.joined[name]
	delete(l.joined, name)
	l.mu.Unlock()
	if had {
		l.hub.metrics.subscriptions.Dec()
		j.at.leave(l, j.channel)
	}
}

// detachAll ends all subscriptions.
func (l *listener) detachAll() {
	l.mu.Lock()
	names := make([]string, 0, len(l.joined))
	for name := range l.joined {
		names = append(names, name)
	}
	l.mu.Unlock()
	for _, name := range names {
		l.detach(name)
	}
}

func (l *listener) close() { l.detachAll() }
