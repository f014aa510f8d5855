package meshpolicy

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/backends/kube/reflector"
	"github.com/argomesh/argomesh/mesh/objects"
)

// shelf has the objects of one place, up to date with the API server. It is the store
// of a reflector.
type shelf struct {
	place   objects.Place
	client  dynamic.Interface
	changed func() // called after each change of what list returns
	log     zerolog.Logger

	mu      sync.Mutex // guards what follows
	objects map[string]*unstructured.Unstructured
	gone    map[types.UID]bool // what was deleted since takeGone; nil is none
	listed  bool
	problem error // of the last call; nil once one succeeds
}

// mostRetry bounds the pause after a watch that failed: not every second for definitions
// that nobody installs.
const mostRetry = 10 * time.Second

// run keeps the shelf until ctx is done. Its lists are not streamed, so that it hears at
// once that there is no such resource.
func (s *shelf) run(ctx context.Context) {
	reflector.Run(ctx, reflector.Config{
		Resource: s.client.Resource(s.place.Resource).Namespace(s.place.Namespace), What: s.place.Resource.Resource,
		Answered: s.answered, MostRetry: mostRetry,
	}, s)
}

// answered remembers whether the objects can be read, and says once that they cannot and
// once that they can.
func (s *shelf) answered(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	was := s.problem
	s.problem = err
	s.mu.Unlock()
	log := s.log.With().Str("resource", s.place.Resource.Resource).Logger()
	switch {
	case err != nil && was == nil:
		log.Warn().Err(err).Msg("objects of the mesh cannot be read, trying again")
		s.changed()
	case err == nil && was != nil:
		log.Info().Msg("objects of the mesh can be read again")
	}
}

// list returns what there is; ok is false before it is known. The error says why it may
// be old.
func (s *shelf) list() (all []*unstructured.Unstructured, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.objects {
		all = append(all, o)
	}
	return all, s.listed, s.problem
}

// takeGone puts what went since it was last called among gone.
func (s *shelf) takeGone(gone map[types.UID]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(gone, s.gone)
	s.gone = nil
}

// Add implements cache.ReflectorStore.
func (s *shelf) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s *shelf) Update(obj any) error {
	if o, ok := obj.(*unstructured.Unstructured); ok {
		slim(o)
		s.mu.Lock()
		s.objects[objects.Name(o)] = o
		s.mu.Unlock()
		s.changed()
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *shelf) Delete(obj any) error {
	if o, ok := obj.(*unstructured.Unstructured); ok {
		s.mu.Lock()
		delete(s.objects, objects.Name(o))
		if s.gone == nil {
			s.gone = map[types.UID]bool{}
		}
		s.gone[o.GetUID()] = true
		s.mu.Unlock()
		s.changed()
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *shelf) Replace(list []any, _ string) error {
	all := make(map[string]*unstructured.Unstructured, len(list))
	for _, obj := range list {
		if o, ok := obj.(*unstructured.Unstructured); ok {
			slim(o)
			all[objects.Name(o)] = o
		}
	}
	s.mu.Lock()
	s.objects, s.listed = all, true
	s.mu.Unlock()
	s.changed()
	return nil
}

// Resync implements cache.ReflectorStore. There is nothing to repeat.
func (s *shelf) Resync() error { return nil }

// slim leaves out what is large and of no use here: which fields were whose.
func slim(o *unstructured.Unstructured) {
	entries := o.GetManagedFields()
	for i := range entries {
		entries[i].FieldsV1 = nil
	}
	o.SetManagedFields(entries)
	unstructured.RemoveNestedField(o.Object, "status")
}
