// Package live answers what the proxies ask of the hub: whose an Application is, what may be
// reached, what an object was last, and which Applications no one may have opened.
package live

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/redis"
	"github.com/argomesh/argomesh/proxies/redis/appkey"
	"github.com/argomesh/argomesh/stream"
)

// RebuildTime is how long connections of a principal that has just started wait to be
// accepted until it knows whose each Application is. A page that is open would end by an
// error, while it outlives a connection that takes its time. After that they are told.
const RebuildTime = 10 * time.Second

// Resolver is redis.OwnerResolver: an Application is the agent's that its link has it for.
type Resolver struct {
	Registry *fleet.Registry
	Store    interface {
		Subscribe(changed func(stream.ResourceKey)) (cancel func())
		Synced() <-chan struct{}
		Get(stream.ResourceKey) (backends.Object, bool)
		List(kind stream.Kind, namespace string) []backends.Object
	}
	// Namespace is that of the hub's Argo CD.
	Namespace string
	// Rules are those of the hub's side of an agent's link.
	Rules func(identity.AgentName, v1alpha1.Agent) ownership.Rules

	mu   sync.Mutex // guards seen
	seen map[stream.ResourceKey]seenApplication
}

// Await waits until it is known whose each Application is, at most limit.
func (o *Resolver) Await(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		changed := o.Registry.Changed()
		if o.Registry.Ready() == nil {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
	select {
	case <-o.Store.Synced():
	case <-ctx.Done():
	}
}

// seenApplication is what was read of an Application last.
type seenApplication struct {
	uid, version string // of the object
	destination  mapping.Destination
}

// maxSeen bounds what is remembered of Applications; beyond it they are read again.
const maxSeen = 4096

// destination reads an Application, unless it is the one that was read last. It may be
// large, and a page asks for it again and again.
func (o *Resolver) destination(application backends.Object) mapping.Destination {
	o.mu.Lock()
	last, found := o.seen[application.Key]
	o.mu.Unlock()
	if found && last.uid == application.UID && last.version == application.ResourceVersion {
		return last.destination
	}
	now := seenApplication{uid: application.UID, version: application.ResourceVersion,
		destination: mapping.DestinationOf(application)}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen == nil || len(o.seen) >= maxSeen {
		o.seen = map[stream.ResourceKey]seenApplication{}
	}
	o.seen[application.Key] = now
	return now.destination
}

// Watch implements redis.OwnerResolver.
func (o *Resolver) Watch(ctx context.Context, changed func(appkey.Instance)) {
	cancel := o.Store.Subscribe(func(key stream.ResourceKey) {
		if key.Kind != stream.Application {
			return
		}
		changed(appkey.Instance{Namespace: key.Namespace, Name: key.Name})
		if key.Namespace == o.Namespace {
			changed(appkey.Instance{Name: key.Name}) // it goes by both names
		}
	})
	defer cancel()
	for {
		agents := o.Registry.Changed()
		changed(appkey.Instance{}) // after which none is missed
		select {
		case <-agents:
		case <-ctx.Done():
			return
		}
	}
}

// Owner implements redis.OwnerResolver.
func (o *Resolver) Owner(i appkey.Instance) (target redis.Target, owned bool, err error) {
	key := o.keyOf(i)
	if err := o.Registry.Ready(); err != nil {
		return redis.Target{}, true, err
	}
	if i.Namespace == "" && !o.Registry.ByDestination() {
		return redis.Target{}, false, nil // Argo CD's own namespace is no agent's
	}
	var where mapping.Destination
	place := fleet.Placement{Namespace: key.Namespace}
	application, known := o.Store.Get(key)
	if known {
		where = o.destination(application)
		place = where.Placement()
	}
	name, owned := o.Registry.Owner(place)
	select {
	case <-o.Store.Synced():
	default:
		if !known && (owned || o.Registry.ByDestination()) {
			return redis.Target{}, true, errors.New("the Applications of the hub are not known yet")
		}
	}
	if !owned {
		return redis.Target{}, false, nil
	}
	agent, err := o.Registry.Reach(name)
	if err != nil {
		return redis.Target{}, true, err
	}
	rules := o.Rules(name, agent)
	namespace, ours := rules.OnSpoke(key.Namespace, where)
	if !ours || known && !rules.Runs(where) {
		return redis.Target{}, false, nil // it is in the agent's namespace, and runs elsewhere
	}
	return redis.Target{Agent: name, UID: string(agent.UID), Instance: appkey.Instance{Namespace: namespace, Name: i.Name},
		Known: known}, true, nil
}

// all returns the Applications of the hub, in no order.
func (o *Resolver) all() []backends.Object { return o.Store.List(stream.Application, "") }

// instance is how the hub's Argo CD names an Application in its Redis.
func (o *Resolver) instance(key stream.ResourceKey) appkey.Instance {
	if key.Namespace == o.Namespace {
		return appkey.Instance{Name: key.Name}
	}
	return appkey.Instance{Namespace: key.Namespace, Name: key.Name}
}

// keyOf is the Application of such a name.
func (o *Resolver) keyOf(i appkey.Instance) stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.Application, Namespace: cmp.Or(i.Namespace, o.Namespace), Name: i.Name}
}
