package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/cmd/internal/argoredis"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/listen"
	"github.com/argomesh/argomesh/cmd/internal/principalconfig"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/redis"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/quota"
)

// lastPrefix begins the keys under which last values are kept in the hub's Redis.
const lastPrefix = "argomesh|last|"

// redisConfig holds what the redis proxy is made of.
type redisConfig struct {
	cfg     principalconfig.RedisProxy
	redis   config.Redis
	owners  *owners
	dial    func(context.Context, identity.AgentName) (net.Conn, error)
	found   func(agent identity.AgentName, mismatch string)
	quota   *quota.Quota
	objects *lastObjects // gets the proxy
	// unopened is what is known of Applications that nobody may have opened.
	unopened unopened
	metrics  prometheus.Registerer
	log      zerolog.Logger
}

// newRedisProxy opens its socket and starts nothing. run serves until its context is
// done.
func newRedisProxy(ctx context.Context, c redisConfig) (run func(context.Context) error, err error) {
	if c.redis.Address == "" {
		return nil, config.Invalid("redis_proxy.listen", "is set, and redis.address is not: give the address of the hub's own Redis")
	}
	hub := redis.HubConfig{
		DialRedis: func(ctx context.Context) (net.Conn, error) { return argoredis.Dial(ctx, c.redis) },
		DialSpoke: c.dial, Owners: c.owners, Found: c.found, Away: c.owners.registry.AwaySince, Metrics: c.metrics, Log: c.log,
		MaxConnections: c.cfg.MaxConnections, MaxSubscriptions: c.cfg.MaxSubscriptions, MaxAgentCalls: c.cfg.MaxAgentCalls,
		MaxKeptBytes: c.cfg.LastKnownMax, Quota: c.quota, Format: keyFormat(c.redis),
	}
	var client *argoredis.Client
	if c.cfg.LastKnownBytes > 0 {
		client = argoredis.Open(c.redis)
		hub.Keep = client.Kept(lastPrefix, c.cfg.LastKnownBytes, redis.KeptFor)
	}
	closeAll := func() error {
		if client == nil {
			return nil
		}
		return client.Close()
	}
	proxy, err := redis.NewHub(hub)
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	var parts []func(context.Context) error
	if hub.Keep != nil && c.cfg.LastKnownUnopened {
		read, err := c.unopened.reader(proxy, c.metrics, c.log)
		if err != nil {
			return nil, errors.Join(err, closeAll())
		}
		parts = append(parts, read)
	}
	l, err := listen.Open(ctx, "redis_proxy.listen", c.cfg.Listen)
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	c.objects.proxy.Store(proxy)
	parts = append(parts, func(ctx context.Context) error { return proxy.Run(ctx, l) })
	return func(ctx context.Context) error {
		c.owners.await(ctx, ownersTime)
		return errors.Join(together(ctx, parts...), closeAll())
	}, nil
}

// keyFormat is the one in which an Argo CD keeps its cache, as its keys have it.
func keyFormat(c config.Redis) string {
	if c.Compression == config.CompressionNone {
		return c.CacheVersion
	}
	return c.CacheVersion + ".gz"
}

// ownersTime is how long connections of a principal that has just started wait to be
// accepted until it knows whose each Application is. A page that is open would end by an
// error, while it outlives a connection that takes its time. After that they are told.
const ownersTime = 10 * time.Second

// owners is redis.Owners: an Application is the agent's that its link has it for.
type owners struct {
	registry *fleet.Registry
	store    interface {
		Subscribe(changed func(stream.ResourceKey)) (cancel func())
		Synced() <-chan struct{}
		Get(stream.ResourceKey) (backends.Object, bool)
		List(kind stream.Kind, namespace string) []backends.Object
	}
	// namespace is that of the hub's Argo CD.
	namespace string
	// rules are those of the hub's side of an agent's link.
	rules func(identity.AgentName, v1alpha1.Agent) ownership.Rules

	mu   sync.Mutex // guards seen
	seen map[stream.ResourceKey]seenApplication
}

// await waits until it is known whose each Application is, at most limit.
func (o *owners) await(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		changed := o.registry.Changed()
		if o.registry.Ready() == nil {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
	select {
	case <-o.store.Synced():
	case <-ctx.Done():
	}
}

// seenApplication is what was read of an Application last.
type seenApplication struct {
	uid, version string // of the object
	whereabouts  mapping.Whereabouts
}

// maxSeen bounds what is remembered of Applications; beyond it they are read again.
const maxSeen = 4096

// whereabouts reads an Application, unless it is the one that was read last. It may be
// large, and a page asks for it again and again.
func (o *owners) whereabouts(application backends.Object) mapping.Whereabouts {
	o.mu.Lock()
	last, found := o.seen[application.Key]
	o.mu.Unlock()
	if found && last.uid == application.UID && last.version == application.ResourceVersion {
		return last.whereabouts
	}
	now := seenApplication{uid: application.UID, version: application.ResourceVersion, whereabouts: mapping.WhereaboutsOf(application)}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen == nil || len(o.seen) >= maxSeen {
		o.seen = map[stream.ResourceKey]seenApplication{}
	}
	o.seen[application.Key] = now
	return now.whereabouts
}

// Watch implements redis.Owners.
func (o *owners) Watch(ctx context.Context, changed func(redis.Instance)) {
	cancel := o.store.Subscribe(func(key stream.ResourceKey) {
		if key.Kind != stream.Application {
			return
		}
		changed(redis.Instance{Namespace: key.Namespace, Name: key.Name})
		if key.Namespace == o.namespace {
			changed(redis.Instance{Name: key.Name}) // it goes by both names
		}
	})
	defer cancel()
	for {
		agents := o.registry.Changed()
		changed(redis.Instance{}) // after which none is missed
		select {
		case <-agents:
		case <-ctx.Done():
			return
		}
	}
}

// Owner implements redis.Owners.
func (o *owners) Owner(i redis.Instance) (target redis.Target, owned bool, err error) {
	key := o.keyOf(i)
	if err := o.registry.Ready(); err != nil {
		return redis.Target{}, true, err
	}
	if i.Namespace == "" && !o.registry.ByDestination() {
		return redis.Target{}, false, nil // Argo CD's own namespace is no agent's
	}
	var where mapping.Whereabouts
	place := fleet.Placement{Namespace: key.Namespace}
	application, known := o.store.Get(key)
	if known {
		where = o.whereabouts(application)
		place = fleet.Placement(where.Placement())
	}
	name, owned := o.registry.Owner(place)
	select {
	case <-o.store.Synced():
	default:
		if !known && (owned || o.registry.ByDestination()) {
			return redis.Target{}, true, errors.New("the Applications of the hub are not known yet")
		}
	}
	if !owned {
		return redis.Target{}, false, nil
	}
	agent, err := o.registry.Reach(name)
	if err != nil {
		return redis.Target{}, true, err
	}
	rules := o.rules(name, agent)
	namespace, ours := rules.OnSpoke(key.Namespace, where)
	if !ours || known && !rules.Runs(where) {
		return redis.Target{}, false, nil // it is in the agent's namespace, and runs elsewhere
	}
	return redis.Target{Agent: name, UID: string(agent.UID), Instance: redis.Instance{Namespace: namespace, Name: i.Name}, Known: known}, true, nil
}
