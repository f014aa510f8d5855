package live

import (
	"context"

	"github.com/argomesh/argomesh/proxies/redis/warmplan"

	"github.com/argomesh/argomesh/proxies/redis/appkey"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/kube"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/division"
	"github.com/argomesh/argomesh/fleet/hub"
	"github.com/argomesh/argomesh/fleet/links"
	"github.com/argomesh/argomesh/fleet/sessions"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/redis"
	"github.com/argomesh/argomesh/stream"
)

// Unopened tells redis.Warm of the agents that are connected to this process, and of their
// Applications.
type Unopened struct {
	Hub      *hub.State
	Store    *kube.Store
	Registry *fleet.Registry
	Sessions *sessions.Sessions
	// Division tells whose Applications are, once it is known what the hub has decided.
	Division func() *division.Division
	Resolver *Resolver
	Kinds    *Kinds
}

// Reader returns what reads the last values of Applications that no one may have opened, until its
// context is done.
func (u Unopened) Reader(proxy *redis.Hub, metrics prometheus.Registerer,
	log zerolog.Logger) (run func(context.Context) error, err error) {
	warm, err := redis.NewWarm(redis.WarmConfig{
		Hub: proxy, Sessions: u.connected, Applications: u.applications, Lookup: u.Read, Stored: u.kept,
		Metrics: metrics, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return u.Hub.Then(func(ctx context.Context) error {
		cancel := u.Store.Subscribe(func(key stream.ResourceKey) {
			if key.Kind == stream.Application {
				warm.Changed(u.Resolver.instance(key))
			}
		})
		defer cancel()
		return warm.Run(ctx)
	}), nil
}

// connected are the agents that are connected, once it is known whose each Application is: what
// is known of an agent then is all that it has, and later there are changes.
func (u Unopened) connected() map[identity.AgentName]string {
	if links.Synced(u.Store) != nil || !u.Division().Known() {
		return nil
	}
	return u.Sessions.Connections()
}

// applications are those of an agent.
func (u Unopened) applications(name identity.AgentName) map[appkey.Instance]uint64 {
	a, known := u.Registry.Agent(name)
	if !known {
		return nil // its connection ends
	}
	return contentsOf(u.Division().List(u.Resolver.Rules(name, a)), u.Resolver.instance)
}

// contentsOf returns what Applications say of their resources.
func contentsOf(applications []backends.Object,
	instance func(stream.ResourceKey) appkey.Instance) map[appkey.Instance]uint64 {
	out := make(map[appkey.Instance]uint64, len(applications))
	for _, o := range applications {
		out[instance(o.Key)] = warmplan.ContentOf(o.Raw)
	}
	return out
}

// Read is redis.WarmConfig.Lookup.
func (u Unopened) Read(i appkey.Instance) (name identity.AgentName, content uint64, ok bool) {
	o, there := u.Store.Get(u.Resolver.keyOf(i))
	if !there {
		return identity.AgentName{}, 0, false
	}
	name, owned := u.Division().OwnerOf(o)
	if !owned || !u.Sessions.Connected(name) {
		return identity.AgentName{}, 0, false
	}
	return name, warmplan.ContentOf(o.Raw), true
}

// kept is redis.WarmConfig.Stored.
func (u Unopened) kept(ctx context.Context, name identity.AgentName, i appkey.Instance) {
	session, connected := u.Sessions.Connection(name)
	if o, there := u.Store.Get(u.Resolver.keyOf(i)); there && connected {
		u.Kinds.learn(ctx, name, session, o)
	}
}
