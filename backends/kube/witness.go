package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/internal/notify"
	"github.com/argomesh/argomesh/stream"
)

const (
	// witnessReads bounds the reads of one Witness that are under way for one call.
	witnessReads = 8
	// witnessPause is the pause after a namespace could not be read.
	witnessPause = 2 * time.Second
)

var (
	namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	crdResource       = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
)

// Witness tells deletions of Applications that someone asked for from those that come
// with the end of their namespace or of their kind, and from what only looks like one: an
// object that lost its labels, or that is there again.
//
// What is there it asks by name. A list, even a consistent one, an API server may answer
// from its own cache (since Kubernetes 1.31), which it takes for fresh when its etcd was
// restored to an earlier revision; the read of one object it asks of etcd.
//
// A namespace that has the same UID before and after a deletion, and is not being
// deleted then, was not being deleted at the time either; so it is with the definition
// of the kind. Run reads them before, when the cache comes to show an Application of a
// namespace. Its methods may be called concurrently.
type Witness struct {
	store  *Store
	client metadata.Interface
	log    zerolog.Logger

	mu      sync.Mutex // guards what follows
	grounds map[ground]groundState
	unread  map[ground]bool // that are to be read
	pending notify.Signal   // has a value while there are any
}

// ground is what an Application stands on: a namespace, or with an empty name the
// definition of the kind.
type ground struct{ namespace string }

// groundState is which object a ground was, by a read that ended before the API server
// came to a revision.
type groundState struct {
	uid      types.UID
	revision uint64
}

// NewWitness returns a Witness of a Store that holds Applications. The client reaches
// the same API server.
func NewWitness(store *Store, client metadata.Interface, log zerolog.Logger) *Witness {
	return &Witness{
		store: store, client: client, log: log,
		grounds: map[ground]groundState{}, unread: map[ground]bool{}, pending: notify.NewSignal(),
	}
}

// Run reads what Applications stand on until ctx is done and then returns nil. It is
// called once.
func (w *Witness) Run(ctx context.Context) error {
	cancel := w.store.Subscribe(func(key stream.ResourceKey) {
		if key.Kind == stream.Application {
			w.want(ground{key.Namespace}, ground{})
		}
	})
	defer cancel()
	failing := false
	for {
		select {
		case <-w.pending:
		case <-ctx.Done():
			return nil
		}
		err := w.readAll(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failing = false
			continue
		case !failing:
			failing = true
			w.log.Warn().Err(err).
				Msg("cannot read the namespaces of Applications or their definition, retrying; meanwhile their deletions count as absences")
		}
		select {
		case <-time.After(witnessPause):
			w.want()
		case <-ctx.Done():
			return nil
		}
	}
}

// want has grounds read that are not known, and those that could not be read.
func (w *Witness) want(grounds ...ground) {
	w.mu.Lock()
	for _, g := range grounds {
		if _, known := w.grounds[g]; !known {
			w.unread[g] = true
		}
	}
	some := len(w.unread) > 0
	w.mu.Unlock()
	if some {
		w.pending.Notify()
	}
}

// readAll reads all that is to be read. What is not there, or could not be read, stays
// unknown; the latter is to be read again.
func (w *Witness) readAll(ctx context.Context) error {
	w.mu.Lock()
	unread := slices.Collect(maps.Keys(w.unread))
	w.mu.Unlock()
	uids, err := w.uids(ctx, unread)
	var revision uint64
	if len(uids) > 0 {
		var rerr error
		if revision, rerr = w.revision(ctx); rerr != nil {
			return rerr
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for g, uid := range uids {
		delete(w.unread, g)
		if uid != "" {
			w.grounds[g] = groundState{uid: uid, revision: revision}
		}
	}
	return err
}

// uids reads grounds: an empty UID means that there is none, or that it is being
// deleted. With an error there are those that could be read.
func (w *Witness) uids(ctx context.Context, grounds []ground) (map[ground]types.UID, error) {
	var mu sync.Mutex // guards found
	found := map[ground]types.UID{}
	var reads errgroup.Group
	reads.SetLimit(witnessReads)
	for _, g := range grounds {
		reads.Go(func() error {
			uid, err := w.uid(ctx, g)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			found[g] = uid
			return nil
		})
	}
	err := reads.Wait()
	return found, err
}

func (w *Witness) uid(ctx context.Context, g ground) (types.UID, error) {
	resource, name := namespaceResource, g.namespace
	if g == (ground{}) {
		resource, name = crdResource, resourceOf(stream.Application).GroupResource().String()
	}
	o, err := w.read(ctx, w.client.Resource(resource), name)
	switch {
	case err != nil:
		return "", fmt.Errorf("read %s %s: %w", resource.Resource, name, err)
	case o == nil || o.DeletionTimestamp != nil:
		return "", nil
	}
	return o.UID, nil
}

// read returns nil for what is not there.
func (w *Witness) read(ctx context.Context, from metadata.ResourceInterface,
	name string) (*metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, w.store.timeout)
	defer cancel()
	o, err := from.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // documented
	}
	return o, err
}

// revision is at least that of all that was read before.
func (w *Witness) revision(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, w.store.timeout)
	defer cancel()
	list, err := w.client.Resource(resourceOf(stream.Application)).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("list Applications: %w", err)
	}
	revision, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("list Applications: resourceVersion: %w", err)
	}
	return revision, nil
}

// Confirm is mirror.Config.Confirm. It reads each namespace once.
func (w *Witness) Confirm(ctx context.Context, deletions []backends.Deletion) ([]bool, error) {
	stood := make([]bool, len(deletions))
	ask := map[ground]bool{}
	w.mu.Lock()
	for i, d := range deletions {
		here, known := w.grounds[ground{d.Last.Key.Namespace}]
		kind, knownKind := w.grounds[ground{}]
		if stood[i] = known && knownKind && max(here.revision, kind.revision) <= d.Revision; stood[i] {
			ask[ground{d.Last.Key.Namespace}], ask[ground{}] = true, true
		}
	}
	before := maps.Clone(w.grounds)
	w.mu.Unlock()

	// Before the others: an API server that is not yet where a deletion was cannot say
	// what has become of it.
	revision, err := w.revision(ctx)
	if err != nil {
		return nil, err
	}
	now, err := w.uids(ctx, slices.Collect(maps.Keys(ask)))
	if err != nil {
		return nil, err
	}
	for g, uid := range now {
		if uid != before[g].uid {
			w.forget(g, before[g])
		}
	}
	stands := func(g ground) bool { return now[g] == before[g].uid }
	confirmed := make([]bool, len(deletions))
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(witnessReads)
	for i, d := range deletions {
		if !stood[i] || !stands(ground{}) || !stands(ground{d.Last.Key.Namespace}) {
			continue
		}
		reads.Go(func() error {
			there, err := w.read(ctx, w.client.Resource(resourceOf(stream.Application)).
				Namespace(d.Last.Key.Namespace), d.Last.Key.Name)
			confirmed[i] = err == nil && there == nil && revision >= d.Revision
			return err
		})
	}
	if err := reads.Wait(); err != nil {
		return nil, fmt.Errorf("read Applications that were deleted: %w", err)
	}
	return confirmed, nil
}

// forget has a ground read again that is another one now, or on its way to that.
func (w *Witness) forget(g ground, was groundState) {
	w.mu.Lock()
	if w.grounds[g] == was {
		delete(w.grounds, g)
	}
	w.mu.Unlock()
	w.want(g)
}
