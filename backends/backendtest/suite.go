package backendtest

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// object is JSON to be.
type object map[string]any

// application is one that Argo CD's own definition accepts.
func application(key stream.ResourceKey) object {
	return object{
		"apiVersion": "argoproj.io/v1alpha1",
		"kind":       string(key.Kind),
		"metadata":   object{"namespace": key.Namespace, "name": key.Name},
		"spec": object{
			"project":     "default",
			"destination": object{"name": "in-cluster", "namespace": "guestbook"},
			"source":      object{"repoURL": "https://example.com/r.git", "path": "guestbook"},
		},
	}
}

func (o object) spec() object { return o["spec"].(object) }

func (o object) with(field string, value any) object { o[field] = value; return o }

func (o object) without(field string) object { delete(o, field); return o }

func (o object) specWith(field string, value any) object { o.spec()[field] = value; return o }

func (o object) meta(field string, value any) object {
	o["metadata"].(object)[field] = value
	return o
}

func (o object) json() []byte {
	raw, err := json.Marshal(o)
	if err != nil {
		panic(err) // a test that writes what is no JSON
	}
	return raw
}

// metadata is what the tests read of an object.
type metadata struct {
	UID               string            `json:"uid"`
	ResourceVersion   string            `json:"resourceVersion"`
	Generation        int64             `json:"generation"`
	CreationTimestamp string            `json:"creationTimestamp"`
	DeletionTimestamp string            `json:"deletionTimestamp"`
	Finalizers        []string          `json:"finalizers"`
	Annotations       map[string]string `json:"annotations"`
}

func (s *suite) metadata(object backends.Object) metadata {
	s.Helper()
	var content struct {
		Metadata metadata `json:"metadata"`
	}
	s.unmarshal(object.Raw, &content)
	return content.Metadata
}

// number is the resourceVersion of an object.
func number(t *testing.T, object backends.Object) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(object.ResourceVersion, 10, 64)
	if err != nil {
		t.Errorf("resourceVersion %q is no number", object.ResourceVersion)
	}
	return n
}

func (s *suite) unmarshal(raw []byte, into any) {
	s.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		s.Errorf("unmarshal %s: %v", raw, err)
	}
}

func (s *suite) marshal(value any) []byte {
	s.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		s.Fatalf("marshal: %v", err)
	}
	return raw
}

// key names an object that is not there, and removes it after the test.
func (s *suite) key(kind stream.Kind) stream.ResourceKey {
	key := stream.ResourceKey{Kind: kind, Namespace: Namespace, Name: "t-" + uuid.NewString()}
	s.T.Cleanup(func() { s.clean(key) })
	return key
}

func (s *suite) clean(key stream.ResourceKey) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), waitTimeout)
	defer cancel()
	for ctx.Err() == nil {
		current, err := s.store.Read(ctx, key)
		if errors.Is(err, stream.ErrNotFound) {
			return
		}
		if err != nil {
			s.Errorf("clean up: %v", err)
			return
		}
		if len(s.metadata(current).Finalizers) > 0 {
			_, err = s.store.Update(ctx, current, application(key).json())
		} else {
			err = s.store.Delete(ctx, key, backends.Preconditions{})
		}
		if err != nil && !errors.Is(err, stream.ErrConflict) && !errors.Is(err, stream.ErrNotFound) {
			s.Errorf("clean up: %v", err)
			return
		}
	}
}

func (s *suite) create(key stream.ResourceKey, content object) backends.Object {
	s.Helper()
	created, err := s.store.Create(s.Context(), key, content.json())
	if err != nil {
		s.Fatalf("Create(): %v", err)
	}
	return created
}

func (s *suite) read(key stream.ResourceKey) backends.Object {
	s.Helper()
	read, err := s.store.Read(s.Context(), key)
	if err != nil {
		s.Fatalf("Read(): %v", err)
	}
	return read
}

func (s *suite) delete(key stream.ResourceKey, pre backends.Preconditions) {
	s.Helper()
	if err := s.store.Delete(s.Context(), key, pre); err != nil {
		s.Fatalf("Delete(): %v", err)
	}
}

// cached waits until the cache shows that version, which must be the newest.
func (s *suite) cached(key stream.ResourceKey, resourceVersion string) backends.Object {
	s.Helper()
	var object backends.Object
	s.eventually("resourceVersion "+resourceVersion+" of "+key.String()+" in the cache", func() bool {
		var ok bool
		object, ok = s.store.Get(key)
		return ok && object.ResourceVersion == resourceVersion
	})
	return object
}

// gone waits until neither server nor cache hold the object.
func (s *suite) gone(key stream.ResourceKey) {
	s.Helper()
	_, err := s.store.Read(s.Context(), key)
	s.wantError("Read() of what was deleted", err, stream.ErrNotFound)
	s.eventually(key.String()+" gone from the cache", func() bool {
		_, ok := s.store.Get(key)
		return !ok && !slices.ContainsFunc(s.store.List(key.Kind, key.Namespace),
			func(object backends.Object) bool { return object.Key == key })
	})
}

// subscribe is Subscribe for a function that eventually waits for: a store tells
// its subscribers one after the other, so each wakes it when it has returned.
func (s *suite) subscribe(changed func(stream.ResourceKey)) (cancel func()) {
	return s.store.Subscribe(func(key stream.ResourceKey) {
		changed(key)
		select {
		case s.changes <- struct{}{}:
		default:
		}
	})
}

// eventually waits until what holds, looking after each call of a subscriber that
// subscribe made.
func (s *suite) eventually(what string, holds func() bool) {
	s.Helper()
	limit := time.NewTimer(waitTimeout)
	defer limit.Stop()
	for !holds() {
		select {
		case <-s.changes:
		case <-limit.C:
			s.Fatalf("not within %s: %s", waitTimeout, what)
		}
	}
}

func (s *suite) within(what string, happened <-chan struct{}) {
	s.Helper()
	limit := time.NewTimer(waitTimeout)
	defer limit.Stop()
	select {
	case <-happened:
	case <-limit.C:
		s.Fatalf("not within %s: %s", waitTimeout, what)
	}
}

// wantError checks that err is of that kind and of no other.
func (s *suite) wantError(call string, err, want error) {
	s.Helper()
	for _, kind := range []error{stream.ErrNotFound, stream.ErrConflict, stream.ErrRefused, stream.ErrUnavailable} {
		if errors.Is(err, kind) != (kind == want) { //nolint:errorlint // is it this very kind?
			s.Errorf("%s = %v, want %v", call, err, want)
			return
		}
	}
}

// shortError checks that the text of err does not carry the object.
func (s *suite) shortError(err error) {
	s.Helper()
	if err != nil && len(err.Error()) > 4096 {
		s.Errorf("an error of %d bytes: %.200s", len(err.Error()), err)
	}
}

// sameContent compares all but the metadata that the server decides upon.
func (s *suite) sameContent(call string, raw []byte, want object) {
	s.Helper()
	if diff := cmp.Diff(s.content(want.json()), s.content(raw)); diff != "" {
		s.Errorf("%s (-want +got):\n%s", call, diff)
	}
}

func (s *suite) content(raw []byte) map[string]any {
	s.Helper()
	var content map[string]any
	if err := utiljson.Unmarshal(raw, &content); err != nil { // integers stay exact
		s.Errorf("unmarshal %s: %v", raw, err)
	}
	if meta, ok := content["metadata"].(map[string]any); ok {
		maps.DeleteFunc(meta, func(field string, _ any) bool {
			switch field {
			case "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds":
				return true
			}
			return false
		})
	}
	return content
}

// recorder counts the calls of a subscription.
type recorder struct {
	mu    sync.Mutex // guards calls
	calls map[stream.ResourceKey]int
}

func newRecorder() *recorder {
	return &recorder{calls: make(map[stream.ResourceKey]int)}
}

func (r *recorder) record(key stream.ResourceKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[key]++
}

func (r *recorder) count(key stream.ResourceKey) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[key]
}

// wait waits for the nth call for key at least.
func (r *recorder) wait(s *suite, key stream.ResourceKey, n int) {
	s.Helper()
	s.eventually(strconv.Itoa(n)+" calls for "+key.String(), func() bool { return r.count(key) >= n })
}
