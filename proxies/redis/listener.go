package redis

import (
	"context"
	"sync"
	"time"

	"github.com/argomesh/argomesh/proxies/redis/appkey"
)

// confirmWait is how long the confirmation of a subscription waits for the agent's, so
// that no message after it is missed. After later ones the caller reads again.
const confirmWait = time.Second

// listener is a caller as far as it is subscribed to channels of Applications. Each
// subscription is with the agent that has the Application, and goes along when another
// one gets it.
type listener struct {
	*outbox
	hub   *Hub
	spawn spawn

	mu            sync.Mutex               // guards what follows, and is locked before a subscriber's
	subscriptions map[string]*subscription // by the caller's name of the channel
}

// subscription is a channel of an Application, as a caller has it.
type subscription struct {
	name string
	key  appkey.Key
	// confirmed says that the caller knows that it is subscribed.
	confirmed bool
	// part is its part in what an agent is asked for; nil while no agent is to be asked.
	part *subscriptionPart
}

func newListener(h *Hub, spawn spawn) *listener {
	return &listener{outbox: newOutbox(), hub: h, spawn: spawn, subscriptions: map[string]*subscription{}}
}

// attach subscribes to a channel, and waits a moment for the agent to confirm, if there
// is one. The caller gets its confirmation, and then confirm is called.
func (l *listener) attach(ctx context.Context, name string, key appkey.Key) {
	part := l.add(name, key)
	if part == nil {
		return
	}
	timeout := time.NewTimer(confirmWait)
	defer timeout.Stop()
	select {
	case <-part.channel.ready:
	case <-ctx.Done():
	case <-timeout.C:
		part.subscriber.stopWaiting()
	}
}

// add notes a subscription, and returns its part if it is a new one that has one.
func (l *listener) add(name string, key appkey.Key) *subscriptionPart {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subscriptions[name] != nil {
		return nil
	}
	s := &subscription{name: name, key: key}
	l.subscriptions[name] = s
	l.hub.subscriptions.add(key.Instance, l) // first, so that no change is missed from here on
	l.followOwner(s)
	return s.part
}

// followOwner moves a subscription to the agent that has its Application now. It is called
// with mu locked.
func (l *listener) followOwner(s *subscription) {
	var (
		at      *subscriber
		channel string
	)
	if target, isOwned, err := l.hub.cfg.Owners.Owner(s.key.Instance); err == nil && isOwned && target.Known {
		at, channel = l.hub.remote(target.Agent).subscriber, s.key.Of(target.Instance).String()
	}
	if at == nil && s.part == nil || s.part != nil && s.part.subscriber == at && s.part.channel.name == channel {
		return
	}
	l.leave(s)
	if at != nil {
		l.hub.metrics.subscriptions.Inc()
		s.part = at.join(l, s.name, channel, s.confirmed)
	}
	if s.confirmed {
		l.deliver(message{channel: s.name, at: time.Now()}) // what is there may be something else
	}
}

// leave ends a subscription's part at an agent. It is called with mu locked.
func (l *listener) leave(s *subscription) {
	if s.part != nil {
		l.hub.metrics.subscriptions.Dec()
		s.part.leave()
		s.part = nil
	}
}

// confirm says that the caller knows that it is subscribed.
func (l *listener) confirm(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.subscriptions[name]
	if s == nil || s.confirmed {
		return
	}
	s.confirmed = true
	if s.part != nil {
		s.part.confirm()
	}
}

// ownerChanged moves the subscriptions to channels of an Application to the agent that has it
// now, and with the zero Instance those to channels of any.
func (l *listener) ownerChanged(i appkey.Instance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.subscriptions {
		if i == (appkey.Instance{}) || i == s.key.Instance {
			l.followOwner(s)
		}
	}
}

// detach ends a subscription, if there is one.
func (l *listener) detach(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.subscriptions[name]; s != nil {
		l.remove(s)
	}
}

// detachAll ends all subscriptions.
func (l *listener) detachAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.subscriptions {
		l.remove(s)
	}
}

// remove is called with mu locked.
func (l *listener) remove(s *subscription) {
	delete(l.subscriptions, s.name)
	l.hub.subscriptions.remove(s.key.Instance, l)
	l.leave(s)
}
