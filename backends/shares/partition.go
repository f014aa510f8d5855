// Package shares divides the Applications of a hub among its agents: each link gets a Store
// that has nothing but its own.
package shares

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// Partition divides the Applications of a hub's Store among the links of its agents, when
// the namespace alone does not say whose they are. Each Application is in the part of
// one agent or of none: through its Store no other one is read, listed or written. Its
// methods may be called concurrently.
type Partition struct {
	store  backends.Store
	synced chan struct{} // closed once placed holds all that the store did when it was synced

	mu     sync.Mutex // guards what follows
	filled bool       // synced is closed
	// owner is nil before the first Assign: nothing is anyone's.
	owner  mapping.Owner
	placed map[stream.ResourceKey]placed // every Application of the store
	owned  map[identity.AgentName]map[stream.ResourceKey]bool
}

// placed is what was last seen of an Application.
type placed struct {
	uid, version string // of the object that it was
	where        mapping.Placement
	owner        identity.AgentName
}

// New returns a Partition of a Store. Nothing is anyone's before Assign.
func New(store backends.Store) *Partition {
	return &Partition{
		store: store, synced: make(chan struct{}), placed: map[stream.ResourceKey]placed{},
		owned: map[identity.AgentName]map[stream.ResourceKey]bool{},
	}
}

// Assign says again whose each Application is, and returns the agents whose part is
// another one now, each with the Applications that it got or lost. The parts count as
// synced after the first call that finds the Store synced.
func (s *Partition) Assign(owner mapping.Owner) map[identity.AgentName][]stream.ResourceKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner = owner
	news := map[identity.AgentName][]stream.ResourceKey{}
	s.fill()
	for key, p := range s.placed {
		for _, name := range s.assign(key, p) {
			news[name] = append(news[name], key)
		}
	}
	return news
}

// fill looks at all that there is once the store is synced: what is not in a part is
// absent, and no one may take for absent what was not looked at. It is called with mu
// locked, after which the store can only show something newer.
func (s *Partition) fill() {
	select {
	case <-s.store.Synced():
	default:
		return
	}
	if s.filled {
		return
	}
	for _, o := range s.store.List(stream.Application, "") {
		p := s.read(o)
		p.owner = s.placed[o.Key].owner
		s.placed[o.Key] = p
	}
	s.filled = true
	close(s.synced)
}

// Changed looks at an Application that appeared, changed or went, and returns whose it
// is and was: those are to look again.
func (s *Partition) Changed(key stream.ResourceKey) []identity.AgentName {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Read under the lock, so that what is noted last is what was there last.
	o, there := s.store.Get(key)
	before := s.placed[key].owner
	if !there {
		s.unassign(key, before)
		delete(s.placed, key)
		return agentsOf(before)
	}
	now := s.read(o)
	now.owner = before
	if news := s.assign(key, now); len(news) > 0 {
		return news
	}
	return agentsOf(before)
}

// assign notes an Application with the owner that it should have, and returns whom that
// is news for.
func (s *Partition) assign(key stream.ResourceKey, p placed) []identity.AgentName {
	before := p.owner
	p.owner = s.ownerOf(p.where)
	s.placed[key] = p
	if before == p.owner {
		return nil
	}
	s.unassign(key, before)
	if !p.owner.IsZero() {
		if s.owned[p.owner] == nil {
			s.owned[p.owner] = map[stream.ResourceKey]bool{}
		}
		s.owned[p.owner][key] = true
	}
	return agentsOf(before, p.owner)
}

func (s *Partition) unassign(key stream.ResourceKey, from identity.AgentName) {
	delete(s.owned[from], key)
	if len(s.owned[from]) == 0 {
		delete(s.owned, from)
	}
}

func (s *Partition) ownerOf(where mapping.Placement) identity.AgentName {
	if s.owner == nil {
		return identity.AgentName{}
	}
	return s.owner(where)
}

func agentsOf(names ...identity.AgentName) []identity.AgentName {
	var out []identity.AgentName
	for _, name := range names {
		if !name.IsZero() {
			out = append(out, name)
		}
	}
	return out
}

// read returns what an object says, of what is noted or by decoding it. It is called
// with mu locked.
func (s *Partition) read(o backends.Object) placed {
	if p, known := s.placed[o.Key]; known && p.uid == o.UID && p.version == o.ResourceVersion {
		return p
	}
	return placed{uid: o.UID, version: o.ResourceVersion, where: mapping.PlacementOf(o)}
}

// OwnerOf returns whose an object of the Store is, or was if it is gone; the zero name
// for no one's.
func (s *Partition) OwnerOf(o backends.Object) identity.AgentName {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ownerOf(s.read(o).where)
}

// ownerAt returns whose an Application would be.
func (s *Partition) ownerAt(where mapping.Placement) identity.AgentName {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ownerOf(where)
}

// owns reports whether an object is in the part of an agent.
func (s *Partition) owns(name identity.AgentName, o backends.Object) bool {
	return s.OwnerOf(o) == name
}

// Synced is closed once the parts hold all that the Store did when it was synced. The
// links of the agents begin then.
func (s *Partition) Synced() <-chan struct{} { return s.synced }

// For is the Store of an agent: the hub's, in which there are no Applications but the
// agent's. Of Applications none is made through it but mirrors of the agent's children.
func (s *Partition) For(name identity.AgentName) backends.Store {
	return &agentStore{Store: s.store, partition: s, agent: name}
}

// agentStore is what one agent's link sees of the hub. What it does not change is the
// Store's; Subscribe tells of more than the part, which is allowed.
type agentStore struct {
	backends.Store
	partition *Partition
	agent     identity.AgentName
}

func (s *agentStore) shows(o backends.Object) bool {
	return o.Key.Kind != stream.Application || s.partition.owns(s.agent, o)
}

// Synced implements backends.Store.
func (s *agentStore) Synced() <-chan struct{} { return s.partition.Synced() }

// Deletions implements backends.Store.
func (s *agentStore) Deletions(deleted func(backends.Deletion)) (cancel func()) {
	return s.Store.Deletions(func(d backends.Deletion) {
		if s.shows(d.Last) {
			deleted(d)
		}
	})
}

// Get implements backends.Store.
func (s *agentStore) Get(key stream.ResourceKey) (backends.Object, bool) {
	if o, there := s.Store.Get(key); there && s.shows(o) {
		return o, true
	}
	return backends.Object{}, false
}

// List implements backends.Store.
func (s *agentStore) List(kind stream.Kind, namespace string) []backends.Object {
	if kind != stream.Application {
		return s.Store.List(kind, namespace)
	}
	s.partition.mu.Lock()
	keys := make([]stream.ResourceKey, 0, len(s.partition.owned[s.agent]))
	for key := range s.partition.owned[s.agent] {
		if namespace == "" || namespace == key.Namespace {
			keys = append(keys, key)
		}
	}
	s.partition.mu.Unlock()
	slices.SortFunc(keys, stream.ResourceKey.Compare) // so that a simulation repeats
	var objects []backends.Object
	for _, key := range keys {
		if o, there := s.Get(key); there {
			objects = append(objects, o)
		}
	}
	return objects
}

// Read implements backends.Store.
func (s *agentStore) Read(ctx context.Context, key stream.ResourceKey) (backends.Object, error) {
	o, err := s.Store.Read(ctx, key)
	if err == nil && !s.shows(o) {
		return backends.Object{}, fmt.Errorf("%s is not of agent %s: %w", key, s.agent, stream.ErrNotFound)
	}
	return o, err
}

// Create implements backends.Store.
func (s *agentStore) Create(ctx context.Context, key stream.ResourceKey, raw []byte,
	opts ...backends.WriteOption) (backends.Object, error) {
	if key.Kind == stream.Application {
		if err := s.mayCreate(key, raw); err != nil {
			return backends.Object{}, err
		}
	}
	return s.Store.Create(ctx, key, raw, opts...)
}

// mayCreate admits mirrors of the agent's children where they are the agent's. One of that
// name that is not in the part is never written over: a Create finds it.
func (s *agentStore) mayCreate(key stream.ResourceKey, raw []byte) error {
	child := mapping.PlacementOf(backends.Object{Key: key, Raw: raw}).Child
	// Its destination does not count: by that it would be the agent's anywhere.
	if child != s.agent || s.partition.ownerAt(mapping.Placement{Namespace: key.Namespace, Child: child}) != s.agent {
		return fmt.Errorf("agent %s makes no Application on the hub: %w", s.agent, stream.ErrRefused)
	}
	if o, there := s.Store.Get(key); there && !s.shows(o) {
		return fmt.Errorf("the hub has an Application of that name of its own, which goes before the spoke's: %w",
			stream.ErrRefused)
	}
	return nil
}

// Update implements backends.Store. That old was the agent's is tested on its
// resourceVersion like the rest of it.
func (s *agentStore) Update(ctx context.Context, old backends.Object, raw []byte,
	opts ...backends.WriteOption) (backends.Object, error) {
	if !s.shows(old) {
		return backends.Object{}, fmt.Errorf("%s is not of agent %s: %w", old.Key, s.agent, stream.ErrConflict)
	}
	return s.Store.Update(ctx, old, raw, opts...)
}

// Delete implements backends.Store. An Application that the cache does not show to be
// the agent's is not deleted, and neither is one that has changed since.
func (s *agentStore) Delete(ctx context.Context, key stream.ResourceKey, pre backends.Preconditions) error {
	if key.Kind == stream.Application {
		o, there := s.Store.Get(key)
		switch {
		case !there || !s.shows(o):
			return fmt.Errorf("%s is not of agent %s: %w", key, s.agent, stream.ErrNotFound)
		case pre == backends.Preconditions{}:
			pre = backends.Preconditions{UID: o.UID, ResourceVersion: o.ResourceVersion}
		}
	}
	return s.Store.Delete(ctx, key, pre)
}
