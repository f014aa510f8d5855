// Package memory is a backends.Store without an API server: for simulations,
// benchmarks and the tests of whoever needs a Store. It answers like a
// kube-apiserver, down to generations, finalizers and the refusal of bad
// metadata; it knows no schema, no admission and no access rules, so it takes
// any spec.
//
// A simulation makes its cache lag and decides when each change arrives, lets
// calls fail before or after they took effect, and lets a process die and come
// back on the same objects:
//
//	hub := memory.New(memory.Config{Lag: true, NewUID: uids, Now: clock})
//	hub.Deliver(1)                 // the initial list: hub.Synced() is closed
//	hub.Create(ctx, key, raw)      // on the server, not in the cache
//	hub.Deliver(1)                 // in the cache, subscribers told
//	hub.Close()                    // kill -9
//	hub = hub.Open()               // the restarted process
package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// Op is a call that reaches the server of a Store.
type Op string

// The calls that Config.Fault and Config.LostReply are asked about.
const (
	OpRead   Op = "read"
	OpCreate Op = "create"
	OpUpdate Op = "update"
	OpDelete Op = "delete"
)

// Config says what a Store is like. The zero value is a Store of Applications
// and AppProjects without faults, whose cache is always current.
type Config struct {
	// Kinds are the kinds the server knows. Empty means Application and
	// AppProject.
	Kinds []stream.Kind
	// NewUID returns the UID of the next object. Nil means a random one. Called
	// with the server locked: it must not call the Store.
	NewUID func() string
	// Now is the clock of creation and deletion timestamps. Nil means time.Now.
	Now func() time.Time
	// MaxObjectBytes is the longest object the server takes, as JSON. Zero means
	// no limit; a kube-apiserver on etcd takes about 1.5 MiB.
	MaxObjectBytes int
	// Lag keeps changes from the cache until Deliver is called.
	Lag bool
	// Fault is asked before each call takes effect; its error, if any, is the
	// call's, wrapped. It should wrap one of the error kinds of stream. May be
	// called concurrently.
	Fault func(Op, stream.ResourceKey) error
	// LostReply is asked after a call took effect; its error, if any, takes the
	// place of the reply: what a client sees whose connection broke meanwhile.
	// May be called concurrently.
	LostReply func(Op, stream.ResourceKey) error
}

// Store is one client, with its cache, of one server in memory. Its methods may
// be called concurrently.
type Store struct {
	cfg    Config
	server *server
	synced chan struct{}

	// Guarded by server.mu.
	cache       map[stream.Kind]map[string]map[string]backends.Object // by namespace, name
	subscribers []*subscriber
	pending     []delivery
	closed      bool
}

var _ backends.Store = (*Store)(nil)

type subscriber struct {
	changed func(stream.ResourceKey)
}

// delivery is what the cache learns in one step: the initial list, or a change.
type delivery struct {
	list    bool
	changes []change
}

// change is the state of one object after a write.
type change struct {
	object backends.Object // its Key at least
	gone   bool
}

// New makes an empty server and a first client of it.
func New(cfg Config) *Store {
	if len(cfg.Kinds) == 0 {
		cfg.Kinds = []stream.Kind{stream.Application, stream.AppProject}
	}
	cfg.Kinds = slices.Clone(cfg.Kinds)
	if cfg.NewUID == nil {
		cfg.NewUID = func() string { return string(uuid.NewUUID()) }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return newStore(cfg, &server{
		newUID:   cfg.NewUID,
		now:      cfg.Now,
		maxBytes: cfg.MaxObjectBytes,
		objects:  make(map[stream.ResourceKey]record),
	})
}

// Open returns another client of the same server, of the same Config, with a
// cache and subscribers of its own. With Lag its first delivery is the list of
// the objects there are now.
func (s *Store) Open() *Store {
	return newStore(s.cfg, s.server)
}

func newStore(cfg Config, srv *server) *Store {
	s := &Store{
		cfg:    cfg,
		server: srv,
		synced: make(chan struct{}),
		cache:  make(map[stream.Kind]map[string]map[string]backends.Object),
	}
	srv.mu.Lock()
	defer srv.mu.Unlock()
	list := delivery{list: true}
	for _, key := range sortedKeys(srv.objects) {
		list.changes = append(list.changes, change{object: srv.objects[key].object})
	}
	if cfg.Lag {
		s.pending = append(s.pending, list)
	} else {
		s.apply(list)
	}
	srv.clients = append(srv.clients, s)
	return s
}

// Close ends the client as the death of its process would: its cache stays as
// it is, nobody is told of anything, calls return ErrUnavailable. The server
// and its other clients go on. Closing twice is harmless.
func (s *Store) Close() {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.closed = true
	s.pending = nil
	s.subscribers = nil
	s.server.clients = slices.DeleteFunc(s.server.clients, func(other *Store) bool { return other == s })
}

// Pending returns how many deliveries wait: one for the initial list, one for
// each change of the server after it. It is zero without Config.Lag.
func (s *Store) Pending() int {
	s.server.mu.RLock()
	defer s.server.mu.RUnlock()
	return len(s.pending)
}

// Deliver lets the cache learn the oldest n deliveries, one by one, calling the
// subscribers after each; fewer when fewer wait, all when n is negative. It
// returns how many it delivered. Deliveries keep the order of the server, also
// across kinds. It is called by one goroutine at a time.
func (s *Store) Deliver(n int) int {
	delivered := 0
	for n < 0 || delivered < n {
		s.server.mu.Lock()
		if len(s.pending) == 0 {
			s.server.mu.Unlock()
			break
		}
		next := s.pending[0]
		s.pending = s.pending[1:]
		s.apply(next)
		told := slices.Clone(s.subscribers)
		s.server.mu.Unlock()
		tell(told, next)
		delivered++
	}
	return delivered
}

// apply is called with server.mu locked.
func (s *Store) apply(d delivery) {
	for _, c := range d.changes {
		key := c.object.Key
		namespaces := s.cache[key.Kind]
		if c.gone {
			delete(namespaces[key.Namespace], key.Name)
			if len(namespaces[key.Namespace]) == 0 {
				delete(namespaces, key.Namespace)
			}
			continue
		}
		if namespaces == nil {
			namespaces = make(map[string]map[string]backends.Object)
			s.cache[key.Kind] = namespaces
		}
		if namespaces[key.Namespace] == nil {
			namespaces[key.Namespace] = make(map[string]backends.Object)
		}
		namespaces[key.Namespace][key.Name] = c.object
	}
	if d.list {
		close(s.synced)
	}
}

func tell(subscribers []*subscriber, d delivery) {
	for _, c := range d.changes {
		for _, sub := range subscribers {
			sub.changed(c.object.Key)
		}
	}
}

// Subscribe implements backends.Store. Without Lag, changed runs in the
// goroutine of the write, before the write returns; with it, in Deliver's.
// Subscribers are called in the order in which they subscribed.
func (s *Store) Subscribe(changed func(stream.ResourceKey)) (cancel func()) {
	sub := &subscriber{changed: changed}
	s.server.mu.Lock()
	if !s.closed {
		s.subscribers = append(s.subscribers, sub)
	}
	var now []backends.Object
	for _, kind := range s.cfg.Kinds {
		now = append(now, s.list(kind, "")...)
	}
	s.server.mu.Unlock()
	for _, object := range now {
		changed(object.Key)
	}
	return func() {
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		s.subscribers = slices.DeleteFunc(s.subscribers, func(other *subscriber) bool { return other == sub })
	}
}

// Synced implements backends.Store.
func (s *Store) Synced() <-chan struct{} { return s.synced }

// Get implements backends.Store.
func (s *Store) Get(key stream.ResourceKey) (backends.Object, bool) {
	s.server.mu.RLock()
	defer s.server.mu.RUnlock()
	object, ok := s.cache[key.Kind][key.Namespace][key.Name]
	return object, ok
}

// List implements backends.Store. The objects are sorted, so that a simulation
// repeats.
func (s *Store) List(kind stream.Kind, namespace string) []backends.Object {
	s.server.mu.RLock()
	defer s.server.mu.RUnlock()
	return s.list(kind, namespace)
}

// list is called with server.mu locked.
func (s *Store) list(kind stream.Kind, namespace string) []backends.Object {
	var objects []backends.Object
	for ns, named := range s.cache[kind] {
		if namespace != "" && namespace != ns {
			continue
		}
		for _, object := range named {
			objects = append(objects, object)
		}
	}
	slices.SortFunc(objects, func(a, b backends.Object) int { return compareKeys(a.Key, b.Key) })
	return objects
}

// Read implements backends.Store.
func (s *Store) Read(ctx context.Context, key stream.ResourceKey) (backends.Object, error) {
	return s.call(ctx, OpRead, key, func() (backends.Object, []change, error) {
		object, err := s.server.read(key)
		return object, nil, err
	})
}

// Create implements backends.Store.
func (s *Store) Create(ctx context.Context, key stream.ResourceKey, raw []byte) (backends.Object, error) {
	return s.call(ctx, OpCreate, key, func() (backends.Object, []change, error) {
		return s.server.create(key, raw)
	})
}

// Update implements backends.Store.
func (s *Store) Update(ctx context.Context, old backends.Object, raw []byte) (backends.Object, error) {
	return s.call(ctx, OpUpdate, old.Key, func() (backends.Object, []change, error) {
		return s.server.update(old, raw)
	})
}

// Delete implements backends.Store.
func (s *Store) Delete(ctx context.Context, key stream.ResourceKey, pre backends.Preconditions) error {
	_, err := s.call(ctx, OpDelete, key, func() (backends.Object, []change, error) {
		changes, err := s.server.delete(key, pre)
		return backends.Object{}, changes, err
	})
	return err
}

// call runs one call of the server: do, with server.mu locked, returns the reply
// and what it changed.
func (s *Store) call(ctx context.Context, op Op, key stream.ResourceKey, do func() (backends.Object, []change, error)) (backends.Object, error) {
	object, err := s.try(ctx, op, key, do)
	if err != nil {
		return backends.Object{}, fmt.Errorf("%s %s: %w", op, key, err)
	}
	return object, nil
}

func (s *Store) try(ctx context.Context, op Op, key stream.ResourceKey, do func() (backends.Object, []change, error)) (backends.Object, error) {
	if err := ctx.Err(); err != nil {
		return backends.Object{}, fmt.Errorf("%w: %w", stream.ErrUnavailable, err)
	}
	if s.cfg.Fault != nil {
		if err := s.cfg.Fault(op, key); err != nil {
			return backends.Object{}, err
		}
	}
	object, err := s.commit(key, do)
	if s.cfg.LostReply != nil {
		if lost := s.cfg.LostReply(op, key); lost != nil {
			return backends.Object{}, lost
		}
	}
	return object, err
}

var errClosed = errors.New("the client is closed")

func (s *Store) commit(key stream.ResourceKey, do func() (backends.Object, []change, error)) (backends.Object, error) {
	s.server.mu.Lock()
	if s.closed {
		s.server.mu.Unlock()
		return backends.Object{}, fmt.Errorf("%w: %w", stream.ErrUnavailable, errClosed)
	}
	if err := s.checkKey(key); err != nil {
		s.server.mu.Unlock()
		return backends.Object{}, err
	}
	object, changes, err := do()
	if err != nil || len(changes) == 0 {
		s.server.mu.Unlock()
		return object, err
	}
	d := delivery{changes: changes}
	var told []*subscriber
	for _, client := range s.server.clients {
		if client.cfg.Lag {
			client.pending = append(client.pending, d)
			continue
		}
		client.apply(d)
		told = append(told, client.subscribers...)
	}
	s.server.mu.Unlock()
	tell(told, d)
	return object, nil
}

func (s *Store) checkKey(key stream.ResourceKey) error {
	switch {
	case !slices.Contains(s.cfg.Kinds, key.Kind):
		return fmt.Errorf("%w: the store does not hold this kind", stream.ErrRefused)
	case key.Namespace == "" || key.Name == "":
		return fmt.Errorf("%w: namespace and name are required", stream.ErrRefused)
	}
	return nil
}
