package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/redis"
	"github.com/argomesh/argomesh/stream"
)

// unopened tells redis.Warm of the agents that are connected to this process, and of their
// Applications.
type unopened struct {
	core   *core
	owners *owners
	kinds  *kinds
}

// reader returns what reads the last values of Applications that nobody may have opened, until its
// context is done.
func (u unopened) reader(proxy *redis.Hub, metrics prometheus.Registerer, log zerolog.Logger) (run func(context.Context) error, err error) {
	warm, err := redis.NewWarm(redis.WarmConfig{
		Hub: proxy, Sessions: u.sessions, Applications: u.applications, Look: u.look, Kept: u.kept, Metrics: metrics, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return u.core.hub.then(func(ctx context.Context) error {
		cancel := u.core.store.Subscribe(func(key stream.ResourceKey) {
			if key.Kind == stream.Application {
				warm.Changed(u.owners.instance(key))
			}
		})
		defer cancel()
		return warm.Run(ctx)
	}), nil
}

// sessions are the agents that are connected, once it is known whose each Application is: what
// is known of an agent then is all that it has, and later there are changes.
func (u unopened) sessions() map[identity.AgentName]string {
	if synced(u.core.store) != nil || !u.core.links.owners.settled() {
		return nil
	}
	return u.core.sessions.connections()
}

// applications are those of an agent.
func (u unopened) applications(name identity.AgentName) map[redis.Instance]uint64 {
	a, known := u.core.agents.Agent(name)
	if !known {
		return nil // its connection ends
	}
	return contentsOf(u.core.links.owners.list(u.core.links.rulesOf(name, a)), u.owners.instance)
}

// contentsOf returns what Applications say of their resources.
func contentsOf(applications []backends.Object, instance func(stream.ResourceKey) redis.Instance) map[redis.Instance]uint64 {
	out := make(map[redis.Instance]uint64, len(applications))
	for _, o := range applications {
		out[instance(o.Key)] = redis.ContentOf(o.Raw)
	}
	return out
}

// look is redis.WarmConfig.Look.
func (u unopened) look(i redis.Instance) (name identity.AgentName, content uint64, ok bool) {
	o, there := u.core.store.Get(u.owners.keyOf(i))
	if !there {
		return identity.AgentName{}, 0, false
	}
	name, owned := u.core.links.owners.ownerOf(o)
	if !owned || !u.core.sessions.connected(name) {
		return identity.AgentName{}, 0, false
	}
	return name, redis.ContentOf(o.Raw), true
}

// kept is redis.WarmConfig.Kept.
func (u unopened) kept(ctx context.Context, name identity.AgentName, i redis.Instance) {
	session, connected := u.core.sessions.connection(name)
	if o, there := u.core.store.Get(u.owners.keyOf(i)); there && connected {
		u.kinds.learn(ctx, name, session, o)
	}
}
