package kube

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/kube/reflector"
	"github.com/argomesh/argomesh/stream"
)

const (
	// pageSize is how many decoded objects a list holds at once where the API
	// server does not stream lists.
	pageSize = 100
	// listTimeout bounds one page.
	listTimeout = 60 * time.Second
)

// informer keeps one kind of one namespace (or of all) in the cache. It is the
// store that a client-go reflector fills.
type informer struct {
	store     *Store
	kind      stream.Kind
	namespace string // empty means all
	selector  backends.Selector
	resource  dynamic.ResourceInterface
	// asked is when the list began that Replace is given next; of the reflector's goroutine.
	asked time.Time
	// away is since when no watch could be opened, zero when the last one was; likewise.
	away time.Time

	// Guarded by store.mu.
	objects map[string]map[string]backends.Object // by namespace, name
	newest  string                                // resourceVersion the cache is at
	listed  bool
	// listedAt is when the list began that filled the cache last.
	listedAt time.Time
	gone     buried
}

var (
	_ cache.TransformingStore      = (*informer)(nil)
	_ cache.ResourceVersionUpdater = (*informer)(nil)
)

func newInformer(s *Store, kind stream.Kind, namespace string, selector backends.Selector) *informer {
	i := &informer{
		store:     s,
		kind:      kind,
		namespace: namespace,
		selector:  selector,
		objects:   make(map[string]map[string]backends.Object),
	}
	if namespace == "" {
		i.resource = s.client.Resource(resourceOf(kind))
	} else {
		i.resource = s.client.Resource(resourceOf(kind)).Namespace(namespace)
	}
	if selector != (backends.Selector{}) {
		i.resource = selected{i.resource, selector}
	}
	return i
}

func (i *informer) run(ctx context.Context) {
	source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc:  i.list,
		WatchFuncWithContext: i.watch,
	}, i.store.client)
	discard := logr.Discard()
	informer := cache.NewReflectorWithOptions(source, nil, i, cache.ReflectorOptions{
		Name:            "argomesh",
		TypeDescription: string(i.kind),
		Backoff:         reflector.Retry(0),
		Logger:          &discard,
	})
	informer.WatchListPageSize = pageSize
	informer.RunWithContext(ctx)
}

// list returns one page, compact. It is always a consistent read: the reflector
// would take what an API server's own cache holds.
func (i *informer) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
	if opts.Continue == "" {
		i.asked = time.Now()
	}
	limited, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	page, err := i.resource.List(limited, opts)
	if err != nil {
		i.store.health.failed(ctx, i, err)
		return nil, err
	}
	i.store.health.ok(i)
	list := &itemList{Items: make([]*item, 0, len(page.Items))}
	list.ResourceVersion = page.GetResourceVersion()
	list.Continue = page.GetContinue()
	list.RemainingItemCount = page.GetRemainingItemCount()
	for n := range page.Items {
		it, err := newItem(i.kind, &page.Items[n])
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, it)
	}
	return list, nil
}

// watch opens a watch. One that begins with the list is a consistent read, too.
func (i *informer) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	streamed := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	if streamed {
		opts.ResourceVersion = ""
		i.asked = time.Now()
	}
	w, err := i.open(ctx, opts)
	if err == nil && !streamed {
		if err = i.continues(ctx, opts.ResourceVersion); err != nil {
			w.Stop()
		}
	}
	switch {
	case err == nil:
		i.away = time.Time{}
		i.store.health.ok(i)
		return w, nil
	case streamed:
		// The reflector now lists, and that says what is wrong. It must not know
		// this error: its own retries of a streamed list outlive ctx.
		return nil, errors.New("streamed list: " + err.Error())
	default:
		i.store.health.failed(ctx, i, err)
		return nil, i.goOn(err)
	}
}

// continues is reflector.Continues within the time of a page. The watch is open by then: what
// goes back later ends it.
func (i *informer) continues(ctx context.Context, resourceVersion string) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return reflector.Continues(ctx, i.resource, resourceVersion)
}

// covers reports whether objects of the namespace are the informer's.
func (i *informer) covers(namespace string) bool {
	return i.namespace == "" || i.namespace == namespace
}

// all yields the objects of a namespace, or all if that is empty; store.mu is locked.
func (i *informer) all(namespace string) iter.Seq[backends.Object] {
	if namespace != "" {
		return maps.Values(i.objects[namespace])
	}
	return func(yield func(backends.Object) bool) {
		for _, named := range i.objects {
			for _, object := range named {
				if !yield(object) {
					return
				}
			}
		}
	}
}

// Transformer implements cache.TransformingStore: a streamed list gathers
// compact items.
func (i *informer) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return i.item(obj) }
}

func (i *informer) item(obj any) (*item, error) {
	switch obj := obj.(type) {
	case *item:
		return obj, nil
	case *unstructured.Unstructured:
		return newItem(i.kind, obj)
	default:
		return nil, fmt.Errorf("watch of %s yields a %T", i.kind, obj)
	}
}

// Add implements cache.ReflectorStore.
func (i *informer) Add(obj any) error { return i.Update(obj) }

// Update implements cache.ReflectorStore.
func (i *informer) Update(obj any) error {
	it, err := i.item(obj)
	if err != nil {
		return err
	}
	key := it.object.Key
	s := i.store
	s.mu.Lock()
	old, was := i.objects[key.Namespace][key.Name]
	if was && !newer(it.object.ResourceVersion, old.ResourceVersion) {
		s.mu.Unlock()
		return nil
	}
	object := it.object
	if was && object.UID == old.UID {
		object.Key, object.UID = old.Key, old.UID // equal, and held by others already
	}
	put(i.objects, object)
	s.metrics.cached(i.kind, old, object)
	told := s.subscribers
	s.mu.Unlock()
	notifyAll(told, key)
	return nil
}

// Delete implements cache.ReflectorStore. The reflector calls it for events of a watch
// alone.
func (i *informer) Delete(obj any) error {
	it, err := i.item(obj)
	if err != nil {
		return err
	}
	key := it.object.Key
	s := i.store
	s.mu.Lock()
	old, was := i.objects[key.Namespace][key.Name]
	if !was || older(it.object.ResourceVersion, old.ResourceVersion) {
		s.mu.Unlock()
		return nil
	}
	delete(i.objects[key.Namespace], key.Name)
	if len(i.objects[key.Namespace]) == 0 {
		delete(i.objects, key.Namespace)
	}
	s.metrics.cached(i.kind, old, backends.Object{})
	if i.selector == (backends.Selector{}) { // else it may have lost a label, and get it back
		i.gone.add(old.UID)
	}
	told, witnesses := s.subscribers, s.witnesses
	s.mu.Unlock()
	if revision, err := strconv.ParseUint(it.object.ResourceVersion, 10, 64); err == nil && it.object.UID == old.UID {
		for _, w := range witnesses {
			w.deleted(backends.Deletion{Last: old, Revision: revision})
		}
	}
	notifyAll(told, key)
	return nil
}

// Replace implements cache.ReflectorStore.
func (i *informer) Replace(list []any, resourceVersion string) error {
	objects := make(map[string]map[string]backends.Object)
	for _, obj := range list {
		it, err := i.item(obj)
		if err != nil {
			return err
		}
		put(objects, it.object)
	}
	s := i.store
	s.mu.Lock()
	back := older(resourceVersion, i.newest)
	was := i.newest
	var changed []stream.ResourceKey
	for old := range i.all("") {
		object, ok := objects[old.Key.Namespace][old.Key.Name]
		if ok && object.ResourceVersion == old.ResourceVersion && object.UID == old.UID {
			continue
		}
		back = back || ok && older(object.ResourceVersion, old.ResourceVersion)
		s.metrics.cached(i.kind, old, object)
		changed = append(changed, old.Key)
	}
	for namespace, named := range objects {
		for name, object := range named {
			if _, ok := i.objects[namespace][name]; !ok {
				s.metrics.cached(i.kind, backends.Object{}, object)
				changed = append(changed, object.Key)
			}
			back = back || i.gone.has(object.UID)
		}
	}
	i.objects, i.newest, i.listedAt = objects, resourceVersion, i.asked
	told := s.subscribers
	s.mu.Unlock()
	if back {
		s.metrics.historyBreaks.WithLabelValues(string(i.kind)).Inc()
		s.log.Warn().Str("kind", string(i.kind)).Str("resource_version", resourceVersion).Str("resource_version_before", was).
			Msg("API server went back in time, as after a restore; the cache follows it")
		s.restored()
	}
	notifyAll(told, changed...)
	i.markSynced()
	return nil
}

// markSynced notes the first list, after all of it was told: who waits for Synced looks at
// all that there is, and would be told of each object once more.
func (i *informer) markSynced() {
	s := i.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.listed {
		return
	}
	i.listed = true
	if s.unsynced--; s.unsynced == 0 {
		close(s.synced)
	}
}

// Resync implements cache.ReflectorStore. There is nothing to repeat.
func (i *informer) Resync() error { return nil }

// UpdateResourceVersion implements cache.ResourceVersionUpdater.
func (i *informer) UpdateResourceVersion(resourceVersion string) {
	i.store.mu.Lock()
	defer i.store.mu.Unlock()
	if newer(resourceVersion, i.newest) {
		i.newest = resourceVersion
	}
}

func put(objects map[string]map[string]backends.Object, object backends.Object) {
	namespace := object.Key.Namespace
	if objects[namespace] == nil {
		objects[namespace] = make(map[string]backends.Object)
	}
	objects[namespace][object.Key.Name] = object
}

func notifyAll(subscribers []*subscriber, changed ...stream.ResourceKey) {
	for _, key := range changed {
		for _, sub := range subscribers {
			sub.changed(key)
		}
	}
}

// newer reports whether a is after b; a resourceVersion that is no number, as no
// Kubernetes API server makes, is after any other.
func newer(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err != nil && a != b || order > 0
}

// older reports whether a is known to be before b.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
