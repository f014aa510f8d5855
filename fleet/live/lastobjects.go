package live

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/argomesh/argomesh/proxies/redis/appkey"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/proxies/redis"
	"github.com/argomesh/argomesh/stream"
)

const (
	// indexedFor is how long it is remembered which Application of an agent has which
	// objects. It is looked at only while the agent is away, when that hardly changes.
	indexedFor = time.Minute
	// maxIndexes is of how many agents that is remembered at a time, and maxIndexed how
	// many objects of one; of those beyond nothing is known.
	maxIndexes = 16
	maxIndexed = 20000
	// maxHolders is how many Applications are looked through for one object.
	maxHolders = 4
)

// LastObjects is resource.LastObjects: an object of an Application is what the spoke's Argo
// CD last said of it.
type LastObjects struct {
	Resolver *Resolver
	// Proxy has the last values; nil before there is one.
	Proxy atomic.Pointer[redis.Hub]

	mu      sync.Mutex // guards indexes
	indexes map[identity.AgentName]*objectIndex
}

// objectIndex says which Applications of an agent have an object.
type objectIndex struct {
	uid     string // of the Agent
	at      time.Time
	holders map[objectName][]holder
}

// objectName is what a call and the status of an Application both have of an object.
type objectName struct{ group, namespace, name string }

// holder is an Application that has an object of that name, of one kind.
type holder struct {
	kind     string
	instance appkey.Instance
}

// Object implements resource.LastObjects.
func (l *LastObjects) Object(ctx context.Context, agent identity.AgentName, uid string,
	r access.Request) (raw []byte, at time.Time, ok bool) {
	proxy := l.Proxy.Load()
	if proxy == nil {
		return nil, time.Time{}, false
	}
	for _, h := range holdersOf(l.index(agent, uid).holders[objectName{r.Group, r.Namespace, r.Name}], r) {
		of := redis.Object{Group: r.Group, Kind: h.kind, Namespace: r.Namespace, Name: r.Name}
		if raw, at, ok = proxy.LastLive(ctx, agent, uid, h.instance, of); ok {
			return raw, at, true
		}
	}
	return nil, time.Time{}, false
}

// holdersOf returns those of the kind for which a call asks, by its usual plural.
func holdersOf(all []holder, r access.Request) (of []holder) {
	for _, h := range all {
		plural, singular := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: r.Group, Version: r.Version,
			Kind: h.kind})
		if (r.Resource == plural.Resource || r.Resource == singular.Resource) && len(of) < maxHolders {
			of = append(of, h)
		}
	}
	return of
}

// index returns that of an agent, which is made if need be.
func (l *LastObjects) index(agent identity.AgentName, uid string) *objectIndex {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if found := l.indexes[agent]; found != nil && found.uid == uid && now.Sub(found.at) < indexedFor {
		return found
	}
	delete(l.indexes, agent)
	if len(l.indexes) >= maxIndexes {
		var oldest identity.AgentName
		for name, index := range l.indexes {
			if oldest.IsZero() || index.at.Before(l.indexes[oldest].at) {
				oldest = name
			}
		}
		delete(l.indexes, oldest)
	}
	made := &objectIndex{uid: uid, at: now,
		holders: indexOf(l.Resolver.all(), l.Resolver.instance, func(i appkey.Instance) bool {
			target, owned, err := l.Resolver.Owner(i)
			return err == nil && owned && target.Known && target.Agent == agent && target.UID == uid
		})}
	if l.indexes == nil {
		l.indexes = map[identity.AgentName]*objectIndex{}
	}
	l.indexes[agent] = made
	return made
}

// indexOf returns which of the Applications that are owned have which objects, by their
// status.
func indexOf(applications []backends.Object, instance func(stream.ResourceKey) appkey.Instance,
	owned func(appkey.Instance) bool) map[objectName][]holder {
	holders, n := map[objectName][]holder{}, 0
	for _, application := range applications {
		is := instance(application.Key)
		if !owned(is) {
			continue
		}
		var view struct {
			Status struct {
				Resources []struct{ Group, Kind, Namespace, Name string } `json:"resources"`
			} `json:"status"`
		}
		if json.Unmarshal(application.Raw, &view) != nil {
			continue
		}
		for _, o := range view.Status.Resources {
			if n++; n > maxIndexed {
				return holders
			}
			name := objectName{o.Group, o.Namespace, o.Name}
			holders[name] = append(holders[name], holder{kind: o.Kind, instance: is})
		}
	}
	return holders
}
