package memory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// server holds objects by the rules of a kube-apiserver for custom resources
// without a status subresource, as Argo CD's are.
type server struct {
	newUID   func() string
	now      func() time.Time
	maxBytes int
	journal  func(Accepted)

	// mu guards what follows, and the caches of all clients.
	mu       sync.RWMutex
	revision uint64
	objects  table    // the cache of each client that does not lag, too
	clients  []*Store // the open ones
	schemas  schemas
}

// The methods below are called with mu locked.

func (s *server) record(a Accepted) {
	if s.journal != nil {
		s.journal(a)
	}
}

// list is what a client's cache learns of all there is.
func (s *server) list() delivery {
	list := delivery{list: true}
	for _, object := range s.objects.all() {
		list.changes = append(list.changes, change{object: object})
	}
	return list
}

// publish hands a delivery to every client: to come with Deliver for those that
// lag, at once for the others. It returns whom of those to tell, and what.
func (s *server) publish(d delivery) (n notification) {
	for _, client := range s.clients {
		if client.cfg.Lag {
			if d.list {
				client.pending = client.pending[:0:0] // the watch broke, what it had not shown is lost
			}
			client.pending = append(client.pending, d)
			continue
		}
		n.deleted = client.deletions(d) // the same for all that do not lag, as changed
		n.changed = client.apply(d)
		n.subscribers = append(n.subscribers, client.subscribers...)
		n.witnesses = append(n.witnesses, client.witnesses...)
	}
	return n
}

func (s *server) read(key stream.ResourceKey) (backends.Object, error) {
	object, ok := s.objects.get(key)
	if !ok {
		return backends.Object{}, stream.ErrNotFound
	}
	return object, nil
}

func (s *server) create(key stream.ResourceKey, raw []byte, strict bool) (backends.Object, []change, error) {
	content, meta, err := decode(key, raw)
	if err != nil {
		return backends.Object{}, nil, err
	}
	if meta.ResourceVersion != "" {
		return backends.Object{}, nil, refuse("resourceVersion is set on an object to be created")
	}
	if err := s.schemas.prune(key.Kind, content, strict); err != nil {
		return backends.Object{}, nil, err
	}
	meta.UID = types.UID(s.newUID())
	meta.CreationTimestamp = metav1.NewTime(s.now()).Rfc3339Copy()
	meta.DeletionTimestamp, meta.DeletionGracePeriodSeconds = nil, nil
	meta.Generation = 1
	if errs := validation.ValidateObjectMeta(&meta, true, validation.NameIsDNSSubdomain,
		field.NewPath("metadata")); len(errs) > 0 {
		return backends.Object{}, nil, refuse("%v", errs.ToAggregate())
	}
	if _, ok := s.objects.get(key); ok {
		return backends.Object{}, nil, fmt.Errorf("%w: it exists", stream.ErrConflict)
	}
	return s.put(key, content, meta)
}

func (s *server) update(shown backends.Object, raw []byte, strict bool) (backends.Object, []change, error) {
	key := shown.Key
	content, meta, err := decode(key, raw)
	if err != nil {
		return backends.Object{}, nil, err
	}
	if shown.UID == "" || shown.ResourceVersion == "" {
		return backends.Object{}, nil, refuse("uid and resourceVersion of the object to replace are required")
	}
	old, ok := s.objects.get(key)
	if !ok {
		return backends.Object{}, nil, stream.ErrNotFound
	}
	if err := check(backends.Preconditions{UID: shown.UID, ResourceVersion: shown.ResourceVersion}, old); err != nil {
		return backends.Object{}, nil, err
	}
	if err := s.schemas.prune(key.Kind, content, strict); err != nil {
		return backends.Object{}, nil, err
	}
	oldContent, oldMeta, err := decode(key, old.Raw)
	if err != nil {
		return backends.Object{}, nil, err
	}
	meta.UID, meta.ResourceVersion = oldMeta.UID, oldMeta.ResourceVersion
	meta.CreationTimestamp, meta.Generation = oldMeta.CreationTimestamp, oldMeta.Generation
	if oldMeta.DeletionTimestamp != nil {
		meta.DeletionTimestamp = oldMeta.DeletionTimestamp
	}
	if meta.DeletionGracePeriodSeconds == nil {
		meta.DeletionGracePeriodSeconds = oldMeta.DeletionGracePeriodSeconds
	}
	errs := validation.ValidateObjectMeta(&meta, true, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	errs = append(errs, validation.ValidateObjectMetaUpdate(&meta, &oldMeta, field.NewPath("metadata"))...)
	if len(errs) > 0 {
		return backends.Object{}, nil, refuse("%v", errs.ToAggregate())
	}

	if err := setMetadata(content, meta); err != nil {
		return backends.Object{}, nil, err
	}
	if same, err := json.Marshal(content); err == nil && bytes.Equal(same, old.Raw) {
		return old, nil, nil
	}
	if !equalBesidesMetadata(content, oldContent) {
		meta.Generation++
	}
	if meta.DeletionTimestamp != nil && len(meta.Finalizers) == 0 {
		last, err := s.next(key, content, meta)
		if err != nil {
			return backends.Object{}, nil, err
		}
		return last, s.remove(last), nil
	}
	return s.put(key, content, meta)
}

func (s *server) delete(key stream.ResourceKey, pre backends.Preconditions) ([]change, error) {
	old, ok := s.objects.get(key)
	if !ok {
		return nil, stream.ErrNotFound
	}
	if err := check(pre, old); err != nil {
		return nil, err
	}
	content, meta, err := decode(key, old.Raw)
	if err != nil {
		return nil, err
	}
	if len(meta.Finalizers) == 0 {
		s.revision++
		return s.remove(old), nil
	}
	if meta.DeletionTimestamp != nil {
		return nil, nil
	}
	now := metav1.NewTime(s.now()).Rfc3339Copy()
	meta.DeletionTimestamp, meta.DeletionGracePeriodSeconds = &now, new(int64)
	meta.Generation++
	_, changes, err := s.put(key, content, meta)
	return changes, err
}

func (s *server) put(key stream.ResourceKey, content map[string]any,
	meta metav1.ObjectMeta) (backends.Object, []change, error) {
	object, err := s.next(key, content, meta)
	if err != nil {
		return backends.Object{}, nil, err
	}
	s.objects.set(object)
	return object, []change{{object: object}}, nil
}

// remove takes an object away; last is what it was.
func (s *server) remove(last backends.Object) []change {
	before, _ := s.objects.get(last.Key)
	s.objects.remove(last.Key)
	return []change{{object: last, gone: true, before: before, revision: s.revision}}
}

// next makes the object of a new revision.
func (s *server) next(key stream.ResourceKey, content map[string]any, meta metav1.ObjectMeta) (backends.Object, error) {
	meta.ResourceVersion = strconv.FormatUint(s.revision+1, 10)
	if err := setMetadata(content, meta); err != nil {
		return backends.Object{}, err
	}
	raw, err := json.Marshal(content)
	if err != nil {
		return backends.Object{}, refuse("marshal: %v", err)
	}
	if s.maxBytes > 0 && len(raw) > s.maxBytes {
		return backends.Object{}, refuse("an object of %d bytes is larger than %d", len(raw), s.maxBytes)
	}
	s.revision++
	next := backends.Object{
		Key: key, UID: string(meta.UID), ResourceVersion: meta.ResourceVersion, Raw: bytes.Clone(raw), // no spare room
	}
	if old, ok := s.objects.get(key); ok && old.UID == next.UID {
		next.UID = old.UID // equal, and in memory already
	}
	return next, nil
}

// decode returns an object less its managedFields, and its metadata.
func decode(key stream.ResourceKey, raw []byte) (map[string]any, metav1.ObjectMeta, error) {
	var content map[string]any
	if err := utiljson.Unmarshal(raw, &content); err != nil {
		return nil, metav1.ObjectMeta{}, refuse("decode: %v", err)
	}
	var meta metav1.ObjectMeta
	fields, _ := content["metadata"].(map[string]any)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &meta); err != nil {
		return nil, metav1.ObjectMeta{}, refuse("decode metadata: %v", err)
	}
	apiVersion, _ := content["apiVersion"].(string)
	kind, _ := content["kind"].(string)
	switch {
	case apiVersion == "":
		return nil, metav1.ObjectMeta{}, refuse("apiVersion is missing")
	case kind != string(key.Kind) || meta.Namespace != key.Namespace || meta.Name != key.Name:
		return nil, metav1.ObjectMeta{}, refuse("the object is %s %s/%s", kind, meta.Namespace, meta.Name)
	}
	meta.ManagedFields = nil
	return content, meta, nil
}

// setMetadata replaces the metadata of content by meta; what a server does not
// know of metadata is gone.
func setMetadata(content map[string]any, meta metav1.ObjectMeta) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&meta)
	if err != nil {
		return refuse("metadata: %v", err)
	}
	content["metadata"] = fields
	return nil
}

func equalBesidesMetadata(a, b map[string]any) bool {
	for field := range a {
		if _, ok := b[field]; !ok && field != "metadata" {
			return false
		}
	}
	for field, value := range b {
		if field != "metadata" && !reflect.DeepEqual(a[field], value) {
			return false
		}
	}
	return true
}

func check(pre backends.Preconditions, object backends.Object) error {
	switch {
	case pre.UID != "" && pre.UID != object.UID:
		return fmt.Errorf("%w: the object has another uid", stream.ErrConflict)
	case pre.ResourceVersion != "" && pre.ResourceVersion != object.ResourceVersion:
		return fmt.Errorf("%w: the object has another resourceVersion", stream.ErrConflict)
	}
	return nil
}

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", stream.ErrRefused, fmt.Sprintf(format, args...))
}
