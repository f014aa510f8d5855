// Package kube is the backends.Store over the Kubernetes API of one side. It
// keeps Applications, AppProjects and what else is mirrored as compact JSON in a cache that client-go
// reflectors feed, and writes through the dynamic client. It links none of Argo
// CD's types, so fields it has never heard of pass through untouched.
//
// It does without client-go's shared informers: their queue between watch and
// cache keeps whole decoded objects, and the moment a listener is told has no
// fixed relation to what a lister shows. Here the reflector writes to the cache
// and then tells, in one goroutine.
//
// Every list is consistent (a quorum read), never one that an API server
// remembers. So once Synced is closed the cache is at least as new as any read
// made before Run, and a list that shows an object older than the cache did
// means one thing: the API server was restored from a backup. Only then does
// the cache go back with it, since it would otherwise show for ever what no
// longer exists; it says so in the log and in
// argomesh_store_history_breaks_total.
//
// An API server that is away, at the start or later, is tried again after at
// most 1.5 seconds, for ever; the log says so once when it goes and once when it
// returns.
//
//	store, err := kube.New(kube.Config{
//		Client:  client, // dynamic.NewForConfig
//		Watch:   map[stream.Kind][]string{stream.Application: {"argocd"}, stream.AppProject: {"argocd"}},
//		Metrics: registry, Log: log,
//	})
//	go store.Run(ctx)
//	<-store.Synced()
package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// Config holds what a Store needs. Fields without a stated default are required.
type Config struct {
	// Client reaches the API server. Its rest.Config is the caller's: client-go's
	// defaults of 5 calls per second and bursts of 10 hold up a sync of a thousand
	// objects for minutes, so set QPS to -1 and leave fairness to the API server.
	Client dynamic.Interface
	// Writes is used instead of Client for whatever is no list or watch, so that those wait
	// for no limit that writes use up. Nil means Client.
	Writes dynamic.Interface
	// Watch says which kinds the cache holds, and in which namespaces. A kind
	// without namespaces is held in all of them.
	Watch map[stream.Kind][]string
	// Only narrows what the cache holds of a kind to what any of its selectors names;
	// Read and the writes reach all. A kind that is not in it is held whole. An object
	// that a label selector names no more is, for the cache, gone.
	Only    map[stream.Kind][]backends.Selector
	Metrics prometheus.Registerer
	Log     zerolog.Logger
	// Restored is told that a list showed the API server at an earlier state than before,
	// as after a restore of its etcd. It does not block. Nil means that no one asks.
	Restored func()
	// Timeout bounds one call to the API server, and how long a watch may take to
	// open. Zero means 15s.
	Timeout time.Duration
}

// Store is a backends.Store. New makes it, Run fills its cache.
type Store struct {
	client    dynamic.Interface
	writes    dynamic.Interface
	log       zerolog.Logger
	timeout   time.Duration
	metrics   *metrics
	health    *health
	informers []*informer
	restored  func()
	synced    chan struct{}

	// mu guards what follows, and the objects of every informer.
	mu          sync.RWMutex
	unsynced    int // informers that have not listed yet
	subscribers []*subscriber
	witnesses   []*witness
}

var _ backends.Store = (*Store)(nil)

type subscriber struct {
	changed func(stream.ResourceKey)
}

type witness struct {
	deleted func(backends.Deletion)
}

// New checks cfg and registers the metrics. It calls no API server.
func New(cfg Config) (*Store, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("kubernetes store: %w", err)
	}
	metrics, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("kubernetes store: register metrics: %w", err)
	}
	s := &Store{
		client:  cfg.Client,
		writes:  cmp.Or(cfg.Writes, cfg.Client),
		log:     cfg.Log,
		timeout: cmp.Or(cfg.Timeout, defaultTimeout),
		metrics: metrics,
		health:  newHealth(cfg.Log, metrics),
		synced:  make(chan struct{}),

		restored: cfg.Restored,
	}
	if s.restored == nil {
		s.restored = func() {}
	}
	for kind, namespaces := range cfg.Watch {
		if len(namespaces) == 0 {
			namespaces = []string{""}
		}
		selectors := cfg.Only[kind]
		if len(selectors) == 0 {
			selectors = []backends.Selector{{}}
		}
		for _, namespace := range namespaces {
			for _, selector := range selectors {
				s.informers = append(s.informers, newInformer(s, kind, namespace, selector))
			}
		}
		metrics.watched(kind)
	}
	s.unsynced = len(s.informers)
	return s, nil
}

func (cfg Config) validate() error {
	var errs []error
	if cfg.Client == nil {
		errs = append(errs, errors.New("no client"))
	}
	if cfg.Metrics == nil {
		errs = append(errs, errors.New("no registerer of metrics"))
	}
	if cfg.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout %s is negative", cfg.Timeout))
	}
	errs = append(errs, cfg.validateOnly())
	if len(cfg.Watch) == 0 {
		errs = append(errs, errors.New("no kind to watch"))
	}
	for kind, namespaces := range cfg.Watch {
		if _, ours := kind.APIResource(); !ours {
			errs = append(errs, fmt.Errorf("kind %q is not one we know", kind))
		}
		for i, namespace := range namespaces {
			if problems := validation.ValidateNamespaceName(namespace, false); len(problems) > 0 {
				errs = append(errs, fmt.Errorf("namespace %q of %s: %s", namespace, kind, problems[0]))
			}
			if slices.Contains(namespaces[:i], namespace) {
				errs = append(errs, fmt.Errorf("namespace %q of %s is given twice", namespace, kind))
			}
		}
	}
	return errors.Join(errs...)
}

// Run keeps the cache until ctx is done and then returns nil. It returns for no
// other reason, and is called once.
func (s *Store) Run(ctx context.Context) error {
	// client-go logs each failed attempt; health logs each outage.
	ctx = logr.NewContext(ctx, logr.Discard())
	var wg sync.WaitGroup
	for _, i := range s.informers {
		wg.Go(func() { i.run(ctx) })
	}
	wg.Wait()
	return nil
}

// Synced implements backends.Store.
func (s *Store) Synced() <-chan struct{} { return s.synced }

// Subscribe implements backends.Store. Anyone who is told of a change finds it in
// the cache. changed runs in the goroutine that keeps the cache, so that kind
// waits for it.
func (s *Store) Subscribe(changed func(stream.ResourceKey)) (cancel func()) {
	sub := &subscriber{changed: changed}
	s.mu.Lock()
	s.subscribers = append(slices.Clip(s.subscribers), sub) // readers hold the old slice
	var keys []stream.ResourceKey
	for _, i := range s.informers {
		for object := range i.all("") {
			keys = append(keys, object.Key)
		}
	}
	s.mu.Unlock()
	for _, key := range keys {
		changed(key)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.subscribers = slices.DeleteFunc(slices.Clone(s.subscribers), func(other *subscriber) bool { return other == sub })
	}
}

// Deletions implements backends.Store. deleted runs in the goroutine that keeps the
// cache, as what Subscribe is given does.
func (s *Store) Deletions(deleted func(backends.Deletion)) (cancel func()) {
	w := &witness{deleted: deleted}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.witnesses = append(slices.Clip(s.witnesses), w) // readers hold the old slice
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.witnesses = slices.DeleteFunc(slices.Clone(s.witnesses), func(other *witness) bool { return other == w })
	}
}

// Get implements backends.Store.
func (s *Store) Get(key stream.ResourceKey) (backends.Object, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, i := range s.informers {
		if i.kind == key.Kind && i.covers(key.Namespace) {
			if object, ok := i.objects[key.Namespace][key.Name]; ok {
				return object, true
			}
		}
	}
	return backends.Object{}, false
}

// List implements backends.Store.
func (s *Store) List(kind stream.Kind, namespace string) []backends.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var objects []backends.Object
	for _, i := range s.informers {
		if i.kind != kind || namespace != "" && !i.covers(namespace) {
			continue
		}
		for object := range i.all(namespace) {
			objects = append(objects, object)
		}
	}
	return objects
}

// validateOnly checks Config.Only.
func (cfg Config) validateOnly() error {
	var errs []error
	for kind, selectors := range cfg.Only {
		if _, watched := cfg.Watch[kind]; !watched {
			errs = append(errs, fmt.Errorf("%s is selected, but not watched", kind))
		}
		if len(selectors) == 0 {
			errs = append(errs, fmt.Errorf("no selector of %s", kind))
		}
		for i, s := range selectors {
			errs = append(errs, validateSelector(s, kind))
			if s.Labels != "" && len(selectors) > 1 || slices.Contains(selectors[:i], s) {
				// Two informers must not hold the same object.
				errs = append(errs, fmt.Errorf("selectors of %s may name the same object", kind))
			}
		}
	}
	return errors.Join(errs...)
}

// ListedSince reports whether every cache was filled by a list that began after t. An API
// server whose etcd is restored while it runs may go on showing what it has in its own
// cache, to consistent lists, too, and does not tell: only what was listed again may show
// the state after.
func (s *Store) ListedSince(t time.Time) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, i := range s.informers {
		if !i.listedAt.After(t) {
			return false
		}
	}
	return true
}
