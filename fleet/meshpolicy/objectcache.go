package meshpolicy

import (
	"maps"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/argomesh/argomesh/backends/kube/collection"
	"github.com/argomesh/argomesh/backends/kube/reflector"
	"github.com/argomesh/argomesh/mesh/objects"
)

// mostRetry bounds the pause after a watch that failed: not every second for definitions
// that no one installs.
const mostRetry = 10 * time.Second

// objectCache has the objects of one place, up to date with the API server.
type objectCache struct {
	*collection.Collection[*unstructured.Unstructured]

	mu   sync.Mutex         // guards what follows
	gone map[types.UID]bool // what went since drainGone; nil is none
}

// newObjectCache has changed called after each change of what list returns. Its lists are not
// streamed, so that it hears at once that there is no such resource.
func newObjectCache(client dynamic.Interface, place objects.Scope, changed func(), log zerolog.Logger) *objectCache {
	s := &objectCache{}
	log = log.With().Str("resource", place.Resource.Resource).Logger()
	s.Collection = collection.New(collection.Config[*unstructured.Unstructured]{
		Reflect: reflector.Config{Resource: client.Resource(place.Resource).
			Namespace(place.Namespace), What: place.Resource.Resource, MostRetry: mostRetry},
		Value: func(o *unstructured.Unstructured) (*unstructured.Unstructured, bool, error) {
			slim(o)
			return o, true, nil
		},
		Changed: func(changes []collection.Change[*unstructured.Unstructured]) {
			s.noteGone(changes)
			changed()
		},
		Readable: func(err error) {
			if err != nil {
				log.Warn().Err(err).Msg("objects of the mesh cannot be read, retrying")
				changed()
			} else {
				log.Info().Msg("objects of the mesh can be read again")
			}
		},
	})
	return s
}

// list returns what there is; ok is false before it is known. The error says why it may
// be old.
func (s *objectCache) list() (all []*unstructured.Unstructured, ok bool, err error) {
	select {
	case <-s.Listed():
		ok = true
	default:
	}
	return s.All(), ok, s.Failure()
}

// noteGone remembers what went.
func (s *objectCache) noteGone(changes []collection.Change[*unstructured.Unstructured]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes {
		if !c.Had || c.Has && c.Before.GetUID() == c.After.GetUID() {
			continue
		}
		if s.gone == nil {
			s.gone = map[types.UID]bool{}
		}
		s.gone[c.Before.GetUID()] = true
	}
}

// drainGone puts what went since it was last called among gone.
func (s *objectCache) drainGone(gone map[types.UID]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(gone, s.gone)
	s.gone = nil
}

// slim leaves out what is large and of no use here: which fields were whose.
func slim(o *unstructured.Unstructured) {
	entries := o.GetManagedFields()
	for i := range entries {
		entries[i].FieldsV1 = nil
	}
	o.SetManagedFields(entries)
	unstructured.RemoveNestedField(o.Object, "status")
}
