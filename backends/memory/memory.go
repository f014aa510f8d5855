// Package memory is a backends.Store without an API server: for simulations,
// benchmarks and the tests of anyone who needs a Store. It answers like a
// kube-apiserver, down to generations, finalizers and the refusal of bad
// metadata; it knows no admission and no access rules, and of a schema only which
// fields there are (Config.Schemas), so it takes any spec.
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
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/schema"
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

// The Ops of an Accepted that Restore and SetSchema brought about.
const (
	OpRestore Op = "restore"
	OpSchema  Op = "schema"
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
	// Schemas says which fields the server keeps of a kind; of a kind that is not in it,
	// all. SetSchema changes it.
	Schemas map[stream.Kind]*schema.Schema
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
	// Journal is told of each change, in the order of the server and before any
	// client. Called with the server locked: it must not call the Store. Nil
	// means no one is told.
	Journal func(Accepted)
}

// Accepted is one change of the server.
type Accepted struct {
	// Client is the name of the one that asked for it; empty for the first client,
	// and for a restore or another schema.
	Client string
	// Op is the call; OpRestore and OpSchema for what those changed.
	Op Op
	// Object is the object after the change; for one that went, as it was last.
	Object backends.Object
	Gone   bool
}

// Store is one client, with its cache, of one server in memory. Its methods may
// be called concurrently.
type Store struct {
	cfg    Config
	name   string
	server *server
	synced chan struct{}

	// Guarded by server.mu.
	cache       table   // without Lag the server's own
	shows       schemas // by which the cache learns what the server has
	subscribers []*subscriber
	witnesses   []*witness
	pending     []delivery
	listed      bool // the initial list has come
	closed      bool
}

var _ backends.Store = (*Store)(nil)

type subscriber struct {
	changed func(stream.ResourceKey)
}

type witness struct {
	deleted func(backends.Deletion)
}

// delivery is what the cache learns in one step: a list, which replaces all it
// knew, or a change.
type delivery struct {
	list    bool
	changes []change
}

// change is the state of one object after a write.
type change struct {
	object backends.Object
	gone   bool
	// before is what went, as it was before, and revision that of its end.
	before   backends.Object
	revision uint64
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
		journal:  cfg.Journal,
		objects:  table{},
		schemas:  schemas{of: maps.Clone(cfg.Schemas)},
	}, "")
}

// Open returns another client of the same server, of the same Config, with a
// cache and subscribers of its own. With Lag its first delivery is the list of
// the objects there are now.
func (s *Store) Open() *Store {
	return newStore(s.cfg, s.server, "")
}

// OpenAs is Open for a client that has a name in the journal.
func (s *Store) OpenAs(name string) *Store {
	return newStore(s.cfg, s.server, name)
}

func newStore(cfg Config, srv *server, name string) *Store {
	s := &Store{
		cfg:    cfg,
		name:   name,
		server: srv,
		synced: make(chan struct{}),
		cache:  table{},
	}
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if list := srv.list(); cfg.Lag {
		s.pending = append(s.pending, list)
	} else {
		s.apply(list)
	}
	srv.clients = append(srv.clients, s)
	return s
}

// Close ends the client as the death of its process would: its cache stays as
// it is, no one is told of anything, calls return ErrUnavailable. The server
// and its other clients go on. Closing twice is harmless.
func (s *Store) Close() {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if !s.closed && !s.cfg.Lag {
		s.cache = s.cache.clone()
	}
	s.closed = true
	s.pending = nil
	s.subscribers, s.witnesses = nil, nil
	s.server.clients = slices.DeleteFunc(s.server.clients, func(other *Store) bool { return other == s })
}

// Pending returns how many deliveries wait: one for each list, initial or after a
// Restore, one for each change of the server. It is zero without Config.Lag.
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
	for (n < 0 || delivered < n) && s.deliver(func([]delivery) int { return 0 }) {
		delivered++
	}
	return delivered
}

// DeliverAny is Deliver for one delivery that need not be the oldest: pick
// chooses among the n deliveries that nothing older of the same object precedes,
// by a number from 0 to n-1. So changes of different objects overtake each other,
// as they do in different informers; those of one object never do, and nothing
// overtakes a list. It reports whether there was one to deliver.
func (s *Store) DeliverAny(pick func(n int) int) bool {
	return s.deliver(func(pending []delivery) int {
		seen := map[stream.ResourceKey]bool{}
		var first []int
		for i, d := range pending {
			if d.list {
				if i == 0 {
					return 0
				}
				break
			}
			key := d.changes[0].object.Key // a change is one object's
			if !seen[key] {
				seen[key] = true
				first = append(first, i)
			}
		}
		return first[pick(len(first))]
	})
}

// deliver lets the cache learn one delivery, which choose picks out of those that
// wait; false when none does.
func (s *Store) deliver(choose func([]delivery) int) bool {
	s.server.mu.Lock()
	if len(s.pending) == 0 {
		s.server.mu.Unlock()
		return false
	}
	i := choose(s.pending)
	next := s.pending[i]
	if i == 0 {
		s.pending = s.pending[1:]
	} else {
		s.pending = slices.Delete(s.pending, i, i+1)
	}
	n := notification{subscribers: slices.Clone(s.subscribers), witnesses: slices.Clone(s.witnesses),
		deleted: s.deletions(next)}
	n.changed = s.apply(next)
	s.server.mu.Unlock()
	n.notify()
	return true
}

// deletions are what a delivery says of the ends of objects that the cache has. It is
// called with server.mu locked, before apply.
func (s *Store) deletions(d delivery) []backends.Deletion {
	var deleted []backends.Deletion
	for _, c := range d.changes {
		last := c.before
		if s.cfg.Lag {
			last, _ = s.cache.get(c.object.Key)
		}
		if c.gone && last.UID == c.object.UID {
			deleted = append(deleted, backends.Deletion{Last: last, Revision: c.revision})
		}
	}
	return deleted
}

// apply is called with server.mu locked. It returns the keys that subscribers are
// to be told of.
func (s *Store) apply(d delivery) []stream.ResourceKey {
	var changed []stream.ResourceKey
	if d.list {
		for _, kind := range s.cfg.Kinds {
			for _, object := range s.cache.list(kind, "") {
				changed = append(changed, object.Key)
			}
		}
		s.cache = table{}
	}
	if !s.cfg.Lag {
		s.cache = s.server.objects
	}
	for _, c := range d.changes {
		key := c.object.Key
		changed = append(changed, key)
		switch {
		case !s.cfg.Lag: // it is known
		case c.gone:
			s.cache.remove(key)
		default:
			shown, _ := s.shows.known(c.object)
			s.cache.set(shown)
		}
	}
	if d.list && !s.listed {
		s.listed = true
		close(s.synced)
	}
	return changed
}

// notification is what a delivery notifies of, once server.mu is not locked.
type notification struct {
	subscribers []*subscriber
	witnesses   []*witness
	changed     []stream.ResourceKey
	deleted     []backends.Deletion
}

func (n notification) notify() {
	for _, d := range n.deleted {
		for _, w := range n.witnesses {
			w.deleted(d)
		}
	}
	for _, key := range n.changed {
		for _, sub := range n.subscribers {
			sub.changed(key)
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
		now = append(now, s.cache.list(kind, "")...)
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

// Deletions implements backends.Store, in the goroutine of what Subscribe is given.
func (s *Store) Deletions(deleted func(backends.Deletion)) (cancel func()) {
	w := &witness{deleted: deleted}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if !s.closed {
		s.witnesses = append(s.witnesses, w)
	}
	return func() {
		s.server.mu.Lock()
		defer s.server.mu.Unlock()
		s.witnesses = slices.DeleteFunc(s.witnesses, func(other *witness) bool { return other == w })
	}
}

// Confirm says of each of these deletions whether nothing of that name is there, by the
// server itself, which has come that far. It is mirror.Config.Confirm for a server that
// has neither namespaces nor definitions of kinds that could end.
func (s *Store) Confirm(ctx context.Context, deletions []backends.Deletion) ([]bool, error) {
	confirmed := make([]bool, len(deletions))
	for i, d := range deletions {
		_, err := s.Read(ctx, d.Last.Key)
		switch {
		case errors.Is(err, stream.ErrNotFound):
			confirmed[i] = s.Revision() >= d.Revision
		case err != nil:
			return nil, err
		}
	}
	return confirmed, nil
}

// Synced implements backends.Store.
func (s *Store) Synced() <-chan struct{} { return s.synced }

// Get implements backends.Store.
func (s *Store) Get(key stream.ResourceKey) (backends.Object, bool) {
	s.server.mu.RLock()
	defer s.server.mu.RUnlock()
	return s.cache.get(key)
}

// List implements backends.Store. The objects are sorted, so that a simulation
// repeats.
func (s *Store) List(kind stream.Kind, namespace string) []backends.Object {
	s.server.mu.RLock()
	defer s.server.mu.RUnlock()
	return s.cache.list(kind, namespace)
}

// Read implements backends.Store.
func (s *Store) Read(ctx context.Context, key stream.ResourceKey) (backends.Object, error) {
	return s.call(ctx, OpRead, key, func() (backends.Object, []change, error) {
		object, err := s.server.read(key)
		return object, nil, err
	})
}

// Create implements backends.Store.
func (s *Store) Create(ctx context.Context, key stream.ResourceKey, raw []byte,
	opts ...backends.WriteOption) (backends.Object, error) {
	return s.call(ctx, OpCreate, key, func() (backends.Object, []change, error) {
		return s.server.create(key, raw, slices.Contains(opts, backends.Strict))
	})
}

// Update implements backends.Store.
func (s *Store) Update(ctx context.Context, old backends.Object, raw []byte,
	opts ...backends.WriteOption) (backends.Object, error) {
	return s.call(ctx, OpUpdate, old.Key, func() (backends.Object, []change, error) {
		return s.server.update(old, raw, slices.Contains(opts, backends.Strict))
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
func (s *Store) call(ctx context.Context, op Op, key stream.ResourceKey,
	do func() (backends.Object, []change, error)) (backends.Object, error) {
	object, err := s.try(ctx, op, key, do)
	if err != nil {
		return backends.Object{}, fmt.Errorf("%s %s: %w", op, key, err)
	}
	return object, nil
}

func (s *Store) try(ctx context.Context, op Op, key stream.ResourceKey,
	do func() (backends.Object, []change, error)) (backends.Object, error) {
	if err := ctx.Err(); err != nil {
		return backends.Object{}, fmt.Errorf("%w: %w", stream.ErrUnavailable, err)
	}
	if s.cfg.Fault != nil {
		if err := s.cfg.Fault(op, key); err != nil {
			return backends.Object{}, err
		}
	}
	object, err := s.commit(op, key, do)
	if s.cfg.LostReply != nil {
		if lost := s.cfg.LostReply(op, key); lost != nil {
			return backends.Object{}, lost
		}
	}
	return object, err
}

var errClosed = errors.New("the client is closed")

func (s *Store) commit(op Op, key stream.ResourceKey,
	do func() (backends.Object, []change, error)) (backends.Object, error) {
	s.server.mu.Lock()
	if s.closed {
		s.server.mu.Unlock()
		return backends.Object{}, fmt.Errorf("%w: %w", stream.ErrUnavailable, errClosed)
	}
	if err := s.cfg.checkKey(key); err != nil {
		s.server.mu.Unlock()
		return backends.Object{}, err
	}
	object, changes, err := do()
	if err != nil || len(changes) == 0 {
		s.server.mu.Unlock()
		return object, err
	}
	for _, c := range changes {
		s.server.record(Accepted{Client: s.name, Op: op, Object: c.object, Gone: c.gone})
	}
	news := s.server.publish(delivery{changes: changes})
	s.server.mu.Unlock()
	news.notify()
	return object, nil
}

func (cfg Config) checkKey(key stream.ResourceKey) error {
	switch {
	case !slices.Contains(cfg.Kinds, key.Kind):
		return fmt.Errorf("%w: the store does not hold this kind", stream.ErrRefused)
	case key.Namespace == "" || key.Name == "":
		return fmt.Errorf("%w: namespace and name are required", stream.ErrRefused)
	}
	return nil
}
