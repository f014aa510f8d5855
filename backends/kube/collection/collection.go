// Package collection keeps something of each object of a resource of the Kubernetes API, up
// to date by package reflector, and tells of each change. What is kept, and what follows
// from a change, is its users'.
//
//	agents := collection.New(collection.Config[*v1alpha1.Agent]{Reflect: ..., Value: toAgent, Changed: changed})
//	agents.Run(ctx)
package collection

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/argomesh/argomesh/backends/kube/reflector"
)

// Config says what a Collection is of. Fields without a stated default are required.
type Config[T any] struct {
	// Reflect says which objects, of one namespace or of a kind without namespaces: they are
	// told apart by their names. Its Answered is the Collection's.
	Reflect reflector.Config
	// Value returns what is kept of an object, which the Collection owns from then on; keep
	// is false when that is nothing. An object with an error is as if there had been no news
	// of it, and is left out of a list; what is said of it is Value's.
	Value func(*unstructured.Unstructured) (value T, keep bool, err error)
	// Changed is told what became of the objects that the API server said something of, once
	// the Collection shows it, from the goroutine of Run: of one, or of all after a list.
	// Nil has it told no one.
	Changed func([]Change[T])
	// Readable is told once that the objects cannot be read, with the error, and once with
	// nil that they can be again. Nil has it told no one.
	Readable func(error)
	// Indexes return the values under which By finds what is kept. Nil is none.
	Indexes map[string]func(T) []string
}

// Change is what became of one object. Before and After are the zero value where nothing was
// kept, or is.
type Change[T any] struct {
	Before, After T
	Had, Has      bool
}

// Collection keeps values by the names of their objects. Its methods may be called
// concurrently, but for those of cache.ReflectorStore.
type Collection[T any] struct {
	cfg    Config[T]
	index  cache.Indexer // of entry[T]
	listed chan struct{} // closed after the first list
	once   sync.Once     // closes it

	mu      sync.Mutex // guards what follows
	failure error
}

type entry[T any] struct {
	name  string
	value T
}

// New returns a Collection that is empty before Run.
func New[T any](cfg Config[T]) *Collection[T] {
	indexers := cache.Indexers{}
	for name, valuesOf := range cfg.Indexes {
		indexers[name] = func(obj any) ([]string, error) { return valuesOf(obj.(entry[T]).value), nil }
	}
	nameOf := func(obj any) (string, error) { return obj.(entry[T]).name, nil }
	return &Collection[T]{cfg: cfg, index: cache.NewIndexer(nameOf, indexers), listed: make(chan struct{})}
}

// Run keeps the Collection up to date until ctx is done. It is called once.
func (c *Collection[T]) Run(ctx context.Context) {
	reflect := c.cfg.Reflect
	reflect.Answered = c.answered
	reflector.Run(ctx, reflect, c)
}

func (c *Collection[T]) answered(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	was := c.failure
	c.failure = err
	c.mu.Unlock()
	if c.cfg.Readable != nil && (was == nil) != (err == nil) {
		c.cfg.Readable(err)
	}
}

// Failure is why the objects cannot be read at present; nil when they can, and before it is
// known.
func (c *Collection[T]) Failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// Listed is closed once the objects were listed.
func (c *Collection[T]) Listed() <-chan struct{} { return c.listed }

// Get returns what is kept of the object of that name. It is shared.
func (c *Collection[T]) Get(name string) (value T, found bool) {
	obj, found, _ := c.index.GetByKey(name) // it never fails
	if !found {
		return value, false
	}
	return obj.(entry[T]).value, true
}

// Names returns the names of all objects of which something is kept.
func (c *Collection[T]) Names() []string { return c.index.ListKeys() }

// All returns all that is kept. It is shared.
func (c *Collection[T]) All() []T { return values[T](c.index.List()) }

// By returns what one of the Indexes has under a value. It is shared. It panics when there
// is no such index.
func (c *Collection[T]) By(index, value string) []T {
	objs, err := c.index.ByIndex(index, value)
	if err != nil {
		panic("index " + index + ": " + err.Error())
	}
	return values[T](objs)
}

func values[T any](objs []any) []T {
	out := make([]T, len(objs))
	for i, obj := range objs {
		out[i] = obj.(entry[T]).value
	}
	return out
}

func (c *Collection[T]) notifyChanged(changes ...Change[T]) {
	if c.cfg.Changed != nil {
		c.cfg.Changed(changes)
	}
}

// Add implements cache.ReflectorStore.
func (c *Collection[T]) Add(obj any) error { return c.Update(obj) }

// Update implements cache.ReflectorStore.
func (c *Collection[T]) Update(obj any) error {
	o, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil // the dynamic client returns nothing else
	}
	name := o.GetName()
	after, keep, err := c.cfg.Value(o)
	if err != nil {
		return nil //nolint:nilerr // Value has said it, and the reflector could only say it again
	}
	if !keep {
		return c.drop(name)
	}
	before, had := c.Get(name)
	if err := c.index.Update(entry[T]{name, after}); err != nil {
		return err
	}
	c.notifyChanged(Change[T]{Before: before, After: after, Had: had, Has: true})
	return nil
}

// Delete implements cache.ReflectorStore.
func (c *Collection[T]) Delete(obj any) error {
	o, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil // the dynamic client returns nothing else
	}
	return c.drop(o.GetName())
}

func (c *Collection[T]) drop(name string) error {
	before, had := c.Get(name)
	if err := c.index.Delete(entry[T]{name: name}); err != nil {
		return err
	}
	c.notifyChanged(Change[T]{Before: before, Had: had})
	return nil
}

// Replace implements cache.ReflectorStore.
func (c *Collection[T]) Replace(list []any, resourceVersion string) error {
	before := map[string]T{}
	for _, obj := range c.index.List() {
		e := obj.(entry[T])
		before[e.name] = e.value
	}
	changes := make([]Change[T], 0, len(list))
	after := make([]any, 0, len(list))
	for _, obj := range list {
		o, ok := obj.(*unstructured.Unstructured)
		if !ok {
			continue // the dynamic client returns nothing else
		}
		value, keep, err := c.cfg.Value(o)
		if err != nil || !keep {
			continue
		}
		name := o.GetName()
		was, had := before[name]
		delete(before, name)
		after = append(after, entry[T]{name, value})
		changes = append(changes, Change[T]{Before: was, After: value, Had: had, Has: true})
	}
	for _, was := range before {
		changes = append(changes, Change[T]{Before: was, Had: true})
	}
	if err := c.index.Replace(after, resourceVersion); err != nil {
		return err
	}
	c.once.Do(func() { close(c.listed) })
	c.notifyChanged(changes...)
	return nil
}

// Resync implements cache.ReflectorStore. There is nothing to repeat.
func (c *Collection[T]) Resync() error { return nil }
