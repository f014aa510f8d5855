// Package backendtest holds the test that every backends.Store passes, so that
// what was shown with one Store, in a simulation, holds with the others.
//
//	func TestStore(t *testing.T) {
//		backendtest.Run(t, func(t testing.TB) backends.Store { return memory.New(memory.Config{}) })
//	}
package backendtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// Namespace is where Run makes its objects. It must exist, and belong to no
// controller.
const Namespace = "argomesh-backendtest"

// waitTimeout is how long a cache may take to follow.
const waitTimeout = 30 * time.Second

// Run tests a Store against its contract. newStore returns a running Store that
// holds Applications and AppProjects of at least Namespace, takes objects of
// 1 MiB and refuses those of 1.6 MiB; it ends with the test it is given. The
// Stores may share a server that holds other objects, too.
func Run(t *testing.T, newStore func(testing.TB) backends.Store) {
	tests := map[string]func(*suite){
		"create":                              create,
		"create what is there":                createExisting,
		"content that is refused":             refuse,
		"objects that are too large":          refuseLarge,
		"calls about nothing":                 missing,
		"update":                              update,
		"update that changes nothing":         updateNothing,
		"update of an object that changed":    updateStale,
		"server's own metadata":               serverMetadata,
		"unknown fields":                      unknownFields,
		"delete":                              deleteObject,
		"delete with preconditions":           deletePreconditions,
		"delete with finalizers":              deleteFinalizers,
		"list":                                list,
		"subscribe":                           subscribe,
		"deletions":                           deletions,
		"notification comes after the change": notifyAfter,
		"cache never goes back":               neverBack,
		"concurrent writers lose no update":   concurrentWriters,
		"concurrent creators make one object": concurrentCreators,
		"cancelled calls":                     cancelled,
		"kinds and names that cannot be":      foreignKeys,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			store := newStore(t)
			s := &suite{T: t, store: store, changes: make(chan struct{}, 1)}
			s.within("the store is synced", store.Synced())
			t.Cleanup(s.subscribe(func(stream.ResourceKey) {}))
			test(s)
		})
	}
}

// suite is one test on one Store.
type suite struct {
	*testing.T
	store   backends.Store
	changes chan struct{} // holds a value after a subscriber was told of a change
}

func create(s *suite) {
	key := s.key(stream.Application)
	created := s.create(key, application(key))
	if created.Key != key {
		s.Errorf("Create() has key %v, want %v", created.Key, key)
	}
	meta := s.metadata(created)
	if created.UID == "" || meta.UID != created.UID {
		s.Errorf("Create() has UID %q, %q in its JSON", created.UID, meta.UID)
	}
	if created.ResourceVersion == "" || meta.ResourceVersion != created.ResourceVersion {
		s.Errorf("Create() has resourceVersion %q, %q in its JSON", created.ResourceVersion, meta.ResourceVersion)
	}
	if _, err := time.Parse(time.RFC3339, meta.CreationTimestamp); err != nil {
		s.Errorf("Create() has creationTimestamp %q", meta.CreationTimestamp)
	}
	if meta.Generation != 1 {
		s.Errorf("Create() has generation %d, want 1", meta.Generation)
	}
	s.sameContent("Create()", created.Raw, application(key))
	if read := s.read(key); !cmp.Equal(read, created) {
		s.Errorf("Read() after Create() (-want +got):\n%s", cmp.Diff(created, read))
	}
	if cached := s.cached(key, created.ResourceVersion); !cmp.Equal(cached, created) {
		s.Errorf("Get() after Create() (-want +got):\n%s", cmp.Diff(created, cached))
	}
	project := s.key(stream.AppProject)
	created = s.create(project, object{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": object{"namespace": project.Namespace, "name": project.Name},
		"spec":     object{"sourceRepos": []any{"*"}},
	})
	if cached := s.cached(project, created.ResourceVersion); !cmp.Equal(cached, created) {
		s.Errorf("Get() of an AppProject (-want +got):\n%s", cmp.Diff(created, cached))
	}
}

func createExisting(s *suite) {
	key := s.key(stream.Application)
	created := s.create(key, application(key))
	other := application(key)
	other.spec()["project"] = "other"
	_, err := s.store.Create(s.Context(), key, other.json())
	s.wantError("Create() of what is there", err, stream.ErrConflict)
	if read := s.read(key); !cmp.Equal(read, created) {
		s.Errorf("object after a refused Create() (-want +got):\n%s", cmp.Diff(created, read))
	}
}

func refuse(s *suite) {
	key := s.key(stream.Application)
	contents := map[string]func() []byte{
		"no JSON":               func() []byte { return []byte("{") },
		"no object":             func() []byte { return []byte("[]") },
		"nothing":               func() []byte { return nil },
		"another kind":          func() []byte { return application(key).with("kind", "AppProject").json() },
		"no apiVersion":         func() []byte { return application(key).without("apiVersion").json() },
		"another name":          func() []byte { return application(key).meta("name", "other").json() },
		"another namespace":     func() []byte { return application(key).meta("namespace", "default").json() },
		"labels of numbers":     func() []byte { return application(key).meta("labels", object{"a": 1}).json() },
		"a label of two words":  func() []byte { return application(key).meta("labels", object{"a": "b c"}).json() },
		"a finalizer of spaces": func() []byte { return application(key).meta("finalizers", []any{" "}).json() },
		"metadata of a list":    func() []byte { return application(key).with("metadata", []any{}).json() },
	}
	for name, content := range contents {
		_, err := s.store.Create(s.Context(), key, content())
		s.wantError("Create() of "+name, err, stream.ErrRefused)
	}
	_, err := s.store.Create(s.Context(), key, application(key).meta("resourceVersion", "1").json())
	s.wantError("Create() with a resourceVersion", err, stream.ErrRefused)
	_, err = s.store.Read(s.Context(), key)
	s.wantError("Read() after refused Create()s", err, stream.ErrNotFound)

	created := s.create(key, application(key))
	for name, content := range contents {
		_, err := s.store.Update(s.Context(), created, content())
		s.wantError("Update() to "+name, err, stream.ErrRefused)
	}
	_, err = s.store.Update(s.Context(), backends.Object{Key: key}, application(key).json())
	s.wantError("Update() of an unknown version", err, stream.ErrRefused)
	if read := s.read(key); !cmp.Equal(read, created) {
		s.Errorf("object after refused Update()s (-want +got):\n%s", cmp.Diff(created, read))
	}
}

func refuseLarge(s *suite) {
	key := s.key(stream.Application)
	sized := func(bytes int) []byte {
		return application(key).specWith("source", object{
			"repoURL": "https://example.com/r.git", "path": "p",
			"helm": object{"values": strings.Repeat("x", bytes)},
		}).json()
	}
	sizes := []int{1_600_000, 2_200_000, 3_500_000} // a kube-apiserver has another answer to each
	for _, size := range sizes {
		_, err := s.store.Create(s.Context(), key, sized(size))
		s.wantError(fmt.Sprintf("Create() of %d bytes", size), err, stream.ErrRefused)
		s.shortError(err)
	}
	created := s.create(key, application(key))
	for _, size := range sizes {
		_, err := s.store.Update(s.Context(), created, sized(size))
		s.wantError(fmt.Sprintf("Update() to %d bytes", size), err, stream.ErrRefused)
		s.shortError(err)
	}
	if _, err := s.store.Update(s.Context(), created, sized(1<<20)); err != nil {
		s.Errorf("Update() to 1 MiB: %v", err)
	}
}

func missing(s *suite) {
	key := s.key(stream.Application)
	_, err := s.store.Read(s.Context(), key)
	s.wantError("Read()", err, stream.ErrNotFound)
	gone := backends.Object{Key: key, UID: uuid.NewString(), ResourceVersion: "1"}
	_, err = s.store.Update(s.Context(), gone, application(key).json())
	s.wantError("Update()", err, stream.ErrNotFound)
	err = s.store.Delete(s.Context(), key, backends.Preconditions{})
	s.wantError("Delete()", err, stream.ErrNotFound)
	err = s.store.Delete(s.Context(), key, backends.Preconditions{UID: gone.UID, ResourceVersion: "1"})
	s.wantError("Delete() with preconditions", err, stream.ErrNotFound)
	if got, ok := s.store.Get(key); ok {
		s.Errorf("Get() = %v", got)
	}
}

func update(s *suite) {
	key := s.key(stream.Application)
	created := s.create(key, application(key).
		meta("labels", object{"a": "1", "b": "2"}).
		meta("finalizers", []any{"example.com/f"}).
		specWith("syncPolicy", object{"automated": object{"prune": true}}))

	next := application(key).
		meta("labels", object{"b": "3"}).
		specWith("project", "other").
		with("operation", object{"initiatedBy": object{"username": "someone"}})
	updated, err := s.store.Update(s.Context(), created, next.json())
	if err != nil {
		s.Fatalf("Update(): %v", err)
	}
	s.sameContent("Update()", updated.Raw, next)
	if updated.UID != created.UID {
		s.Errorf("Update() has UID %s, want %s", updated.UID, created.UID)
	}
	if number(s.T, updated) <= number(s.T, created) {
		s.Errorf("Update() has resourceVersion %s after %s", updated.ResourceVersion, created.ResourceVersion)
	}
	before, after := s.metadata(created), s.metadata(updated)
	if after.Generation != before.Generation+1 {
		s.Errorf("Update() of the spec has generation %d after %d", after.Generation, before.Generation)
	}
	if after.CreationTimestamp != before.CreationTimestamp {
		s.Errorf("Update() has creationTimestamp %s, want %s", after.CreationTimestamp, before.CreationTimestamp)
	}
	if read := s.read(key); !cmp.Equal(read, updated) {
		s.Errorf("Read() after Update() (-want +got):\n%s", cmp.Diff(updated, read))
	}
	if cached := s.cached(key, updated.ResourceVersion); !cmp.Equal(cached, updated) {
		s.Errorf("Get() after Update() (-want +got):\n%s", cmp.Diff(updated, cached))
	}

	labelled, err := s.store.Update(s.Context(), updated, next.meta("labels", object{"b": "4"}).json())
	if err != nil {
		s.Fatalf("Update() of a label: %v", err)
	}
	if got, want := s.metadata(labelled).Generation, after.Generation; got != want {
		s.Errorf("Update() of a label has generation %d, want %d", got, want)
	}
}

func updateNothing(s *suite) {
	key := s.key(stream.Application)
	created := s.create(key, application(key))
	for name, raw := range map[string][]byte{
		"what it was made of":   application(key).json(),
		"what the server holds": created.Raw,
	} {
		same, err := s.store.Update(s.Context(), created, raw)
		if err != nil {
			s.Fatalf("Update() to %s: %v", name, err)
		}
		if !cmp.Equal(same, created) {
			s.Errorf("Update() to %s (-want +got):\n%s", name, cmp.Diff(created, same))
		}
	}
}

func updateStale(s *suite) {
	key := s.key(stream.Application)
	first := s.create(key, application(key))
	second, err := s.store.Update(s.Context(), first, application(key).specWith("project", "second").json())
	if err != nil {
		s.Fatalf("Update(): %v", err)
	}
	_, err = s.store.Update(s.Context(), first, application(key).specWith("project", "third").json())
	s.wantError("Update() of an older version", err, stream.ErrConflict)
	_, err = s.store.Update(s.Context(), first, application(key).specWith("project", "second").json())
	s.wantError("Update() of an older version to what is there", err, stream.ErrConflict)
	foreign := second
	foreign.UID = uuid.NewString()
	_, err = s.store.Update(s.Context(), foreign, application(key).specWith("project", "third").json())
	s.wantError("Update() of another object", err, stream.ErrConflict)
	if read := s.read(key); !cmp.Equal(read, second) {
		s.Errorf("object after conflicts (-want +got):\n%s", cmp.Diff(second, read))
	}

	// The uid and resourceVersion in raw do not count, old's do.
	third, err := s.store.Update(s.Context(), second, application(key).specWith("project", "third").
		meta("uid", foreign.UID).meta("resourceVersion", first.ResourceVersion).json())
	if err != nil {
		s.Fatalf("Update() with another uid and resourceVersion in the content: %v", err)
	}

	s.delete(key, backends.Preconditions{})
	_, err = s.store.Update(s.Context(), third, application(key).json())
	s.wantError("Update() of a deleted object", err, stream.ErrNotFound)
	s.create(key, application(key))
	_, err = s.store.Update(s.Context(), third, application(key).json())
	s.wantError("Update() of an object that was made again", err, stream.ErrConflict)
}

func serverMetadata(s *suite) {
	key := s.key(stream.Application)
	past := "2001-02-03T04:05:06Z"
	invented := application(key).
		meta("uid", uuid.NewString()).meta("generation", 77).
		meta("managedFields", []any{object{
			"manager": "x", "operation": "Update", "apiVersion": "argoproj.io/v1alpha1",
			"fieldsType": "FieldsV1", "fieldsV1": object{"f:spec": object{}},
		}}).
		meta("creationTimestamp", past).meta("deletionTimestamp", past).meta("deletionGracePeriodSeconds", 5)
	created := s.create(key, invented)
	s.notInvented("Create()", created, past)

	updated, err := s.store.Update(s.Context(), created, application(key).
		meta("creationTimestamp", past).meta("generation", 77).specWith("project", "other").json())
	if err != nil {
		s.Fatalf("Update(): %v", err)
	}
	s.notInvented("Update()", updated, past)
	if got := s.metadata(updated).Generation; got != 2 {
		s.Errorf("Update() has generation %d, want 2", got)
	}
	for name, got := range map[string]backends.Object{"Create()": created, "Update()": updated, "Read()": s.read(key),
		"Get()": s.cached(key, updated.ResourceVersion)} {
		if bytes.Contains(got.Raw, []byte("managedFields")) {
			s.Errorf("%s has managedFields: %s", name, got.Raw)
		}
	}
}

func (s *suite) notInvented(call string, object backends.Object, past string) {
	s.Helper()
	meta := s.metadata(object)
	if meta.CreationTimestamp == past {
		s.Errorf("%s took a creationTimestamp", call)
	}
	if meta.DeletionTimestamp != "" {
		s.Errorf("%s took a deletionTimestamp", call)
	}
	if meta.Generation == 77 {
		s.Errorf("%s took a generation", call)
	}
}

func unknownFields(s *suite) {
	key := s.key(stream.Application)
	// valuesObject may hold anything; the rest is what Argo CD has and a Store
	// does not know.
	values := object{
		"text":    "<a href=\"x\">&amp; é ☃ \u2028 \\ \t</a>",
		"null":    nil,
		"large":   json.Number("9007199254740993"),
		"small":   json.Number("-9223372036854775808"),
		"real":    json.Number("1.5"),
		"tiny":    json.Number("1e-9"),
		"true":    true,
		"empty":   object{"list": []any{}, "map": object{}, "text": ""},
		"nested":  []any{nil, object{"null": nil}, []any{json.Number("1"), "2", false}},
		"$ref":    "x",
		"a.b/c d": object{"kind": "x", "metadata": object{"managedFields": []any{"not metadata's"}}},
	}
	content := application(key).
		meta("annotations", object{"example.com/anything": "{\"a\": [1, 2]}\n"}).
		specWith("source",
			object{"repoURL": "https://example.com/r.git", "path": "p", "helm": object{"valuesObject": values}}).
		specWith("ignoreDifferences", []any{object{"kind": "Deployment", "jsonPointers": []any{"/spec/replicas"}}}).
		with("status",
			object{"sync": object{"status": "OutOfSync"},
				"resources": []any{object{"kind": "Service", "name": "x", "version": "v1"}}}).
		with("operation", object{"sync": object{"revision": "abc"}})
	created := s.create(key, content)
	s.sameContent("Create()", created.Raw, content)
	s.sameContent("Get()", s.cached(key, created.ResourceVersion).Raw, content)

	// A label is changed as a client does it that knows nothing of the rest.
	var known map[string]json.RawMessage
	s.unmarshal(created.Raw, &known)
	var metadata map[string]json.RawMessage
	s.unmarshal(known["metadata"], &metadata)
	metadata["labels"] = json.RawMessage(`{"a":"b"}`)
	known["metadata"] = s.marshal(metadata)
	updated, err := s.store.Update(s.Context(), created, s.marshal(known))
	if err != nil {
		s.Fatalf("Update(): %v", err)
	}
	content.meta("labels", object{"a": "b"})
	s.sameContent("Update()", updated.Raw, content)
	s.sameContent("Read()", s.read(key).Raw, content)
	s.sameContent("Get()", s.cached(key, updated.ResourceVersion).Raw, content)
}

func deleteObject(s *suite) {
	key := s.key(stream.Application)
	created := s.create(key, application(key))
	s.cached(key, created.ResourceVersion)
	s.delete(key, backends.Preconditions{})
	s.gone(key)
	s.wantError("second Delete()", s.store.Delete(s.Context(), key, backends.Preconditions{}), stream.ErrNotFound)

	again := s.create(key, application(key))
	if again.UID == created.UID {
		s.Errorf("an object made again has the UID of the old one, %s", again.UID)
	}
	if cached := s.cached(key, again.ResourceVersion); cached.UID != again.UID {
		s.Errorf("Get() has UID %s, want %s", cached.UID, again.UID)
	}
}

func deletePreconditions(s *suite) {
	key := s.key(stream.Application)
	first := s.create(key, application(key))
	second, err := s.store.Update(s.Context(), first, application(key).specWith("project", "other").json())
	if err != nil {
		s.Fatalf("Update(): %v", err)
	}
	for name, pre := range map[string]backends.Preconditions{
		"of another uid":           {UID: uuid.NewString()},
		"of an older version":      {ResourceVersion: first.ResourceVersion},
		"of uid and older version": {UID: second.UID, ResourceVersion: first.ResourceVersion},
		"of version, another uid":  {UID: uuid.NewString(), ResourceVersion: second.ResourceVersion},
	} {
		s.wantError("Delete() "+name, s.store.Delete(s.Context(), key, pre), stream.ErrConflict)
	}
	if read := s.read(key); !cmp.Equal(read, second) {
		s.Errorf("object after conflicts (-want +got):\n%s", cmp.Diff(second, read))
	}
	s.delete(key, backends.Preconditions{UID: second.UID, ResourceVersion: second.ResourceVersion})
	s.gone(key)
	third := s.create(key, application(key))
	s.delete(key, backends.Preconditions{UID: third.UID})
	fourth := s.create(key, application(key))
	s.delete(key, backends.Preconditions{ResourceVersion: fourth.ResourceVersion})
	s.gone(key)
}

func deleteFinalizers(s *suite) {
	key := s.key(stream.Application)
	content := application(key).meta("finalizers", []any{"resources-finalizer.argocd.argoproj.io", "example.com/other"})
	created := s.create(key, content)
	s.delete(key, backends.Preconditions{UID: created.UID, ResourceVersion: created.ResourceVersion})
	deleting := s.read(key)
	meta := s.metadata(deleting)
	if _, err := time.Parse(time.RFC3339, meta.DeletionTimestamp); err != nil {
		s.Fatalf("Delete() of an object with finalizers left deletionTimestamp %q", meta.DeletionTimestamp)
	}
	if number(s.T, deleting) <= number(s.T, created) {
		s.Errorf("Delete() left resourceVersion %s after %s", deleting.ResourceVersion, created.ResourceVersion)
	}
	if cached := s.cached(key, deleting.ResourceVersion); !cmp.Equal(cached, deleting) {
		s.Errorf("Get() after Delete() (-want +got):\n%s", cmp.Diff(deleting, cached))
	}
	s.delete(key, backends.Preconditions{UID: created.UID})
	if again := s.read(key); !cmp.Equal(again, deleting) {
		s.Errorf("object after a second Delete() (-want +got):\n%s", cmp.Diff(deleting, again))
	}
	_, err := s.store.Create(s.Context(), key, application(key).json())
	s.wantError("Create() beside a deleting object", err, stream.ErrConflict)
	_, err = s.store.Update(s.Context(), deleting, content.meta("finalizers",
		[]any{"resources-finalizer.argocd.argoproj.io", "example.com/other", "example.com/new"}).json())
	s.wantError("Update() that adds a finalizer to a deleting object", err, stream.ErrRefused)

	one, err := s.store.Update(s.Context(), deleting, content.meta("finalizers", []any{"example.com/other"}).json())
	if err != nil {
		s.Fatalf("Update() that removes a finalizer: %v", err)
	}
	if got := s.metadata(one).DeletionTimestamp; got != meta.DeletionTimestamp {
		s.Errorf("Update() of a deleting object has deletionTimestamp %q, want %q", got, meta.DeletionTimestamp)
	}
	s.cached(key, one.ResourceVersion)
	last, err := s.store.Update(s.Context(), one, application(key).json())
	if err != nil {
		s.Fatalf("Update() that removes the last finalizer: %v", err)
	}
	if last.UID != created.UID {
		s.Errorf("Update() that removes the last finalizer has UID %q, want %q", last.UID, created.UID)
	}
	s.gone(key)
	_, err = s.store.Update(s.Context(), last, application(key).json())
	s.wantError("Update() after the last finalizer went", err, stream.ErrNotFound)
}

func list(s *suite) {
	keys := map[stream.ResourceKey]bool{}
	for range 3 {
		key := s.key(stream.Application)
		created := s.create(key, application(key))
		s.cached(key, created.ResourceVersion)
		keys[key] = true
	}
	for _, namespace := range []string{Namespace, ""} {
		found := 0
		for _, object := range s.store.List(stream.Application, namespace) {
			if keys[object.Key] {
				found++
			}
			if cached, ok := s.store.Get(object.Key); ok && len(cached.Raw) == 0 {
				s.Errorf("Get(%s) is empty", object.Key)
			}
			if object.Key.Kind != stream.Application || namespace != "" && object.Key.Namespace != namespace {
				s.Errorf("List(Application, %q) has %s", namespace, object.Key)
			}
		}
		if found != len(keys) {
			s.Errorf("List(Application, %q) has %d of %d", namespace, found, len(keys))
		}
	}
	for _, object := range s.store.List(stream.AppProject, "") {
		if object.Key.Kind != stream.AppProject {
			s.Errorf("List(AppProject) has %s", object.Key)
		}
	}
	if got := s.store.List(stream.Application, "no-such-namespace"); len(got) != 0 {
		s.Errorf("List() of a namespace that is not there = %v", got)
	}
}

func subscribe(s *suite) {
	before := s.key(stream.Application)
	s.cached(before, s.create(before, application(before)).ResourceVersion)
	seen := newRecorder()
	cancel := s.subscribe(seen.record)
	s.T.Cleanup(cancel)
	if seen.count(before) == 0 {
		s.Errorf("Subscribe() returned without a call for %s, which was there", before)
	}

	key := s.key(stream.Application)
	created := s.create(key, application(key))
	s.cached(key, created.ResourceVersion)
	seen.wait(s, key, 1)
	updated, err := s.store.Update(s.Context(), created, application(key).specWith("project", "other").json())
	if err != nil {
		s.Fatalf("Update(): %v", err)
	}
	s.cached(key, updated.ResourceVersion)
	seen.wait(s, key, 2)
	s.delete(key, backends.Preconditions{})
	s.gone(key)
	seen.wait(s, key, 3)

	cancel()
	after := s.key(stream.Application)
	s.cached(after, s.create(after, application(after)).ResourceVersion)
	if n := seen.count(after); n != 0 {
		s.Errorf("%d calls for an object that was made after cancel", n)
	}
	cancel() // twice is harmless
}

// deletionWatch notes what a store tells of deletions, and in which order.
type deletionWatch struct {
	mu    sync.Mutex // guards what follows
	seen  []backends.Deletion
	first map[stream.ResourceKey]bool // that Subscribe was, before Deletions
}

func (w *deletionWatch) see(d backends.Deletion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, d)
}

// observe notes that a subscriber was told of an object that is gone.
func (w *deletionWatch) observe(key stream.ResourceKey) {
	before := len(w.of(key)) == 0
	w.mu.Lock()
	defer w.mu.Unlock()
	w.first[key] = w.first[key] || before
}

func (w *deletionWatch) observedFirst(key stream.ResourceKey) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.first[key]
}

func (w *deletionWatch) of(key stream.ResourceKey) (found []backends.Deletion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.seen {
		if d.Last.Key == key {
			found = append(found, d)
		}
	}
	return found
}

func deletions(s *suite) {
	w := &deletionWatch{first: map[stream.ResourceKey]bool{}}
	of := w.of
	cancel := s.store.Deletions(w.see)
	s.T.Cleanup(s.subscribe(func(key stream.ResourceKey) {
		if _, there := s.store.Get(key); !there {
			w.observe(key)
		}
	}))

	// That of an object with a finalizer is seen when it goes, and not before.
	plain, finalized := s.key(stream.Application), s.key(stream.Application)
	last := s.create(plain, application(plain))
	s.cached(plain, last.ResourceVersion)
	s.create(finalized, application(finalized).meta("finalizers", []string{"example.com/stay"}))
	s.delete(finalized, backends.Preconditions{})
	going := s.read(finalized)
	s.cached(finalized, going.ResourceVersion)
	s.delete(plain, backends.Preconditions{})
	s.gone(plain)
	s.eventually("the deletion is seen", func() bool { return len(of(plain)) > 0 })
	if got := of(plain); len(got) != 1 || !cmp.Equal(got[0].Last, last) || got[0].Revision <= number(s.T, last) {
		s.Errorf("the deletion of %+v is %+v", last, got)
	}
	if got := of(finalized); len(got) > 0 {
		s.Errorf("of an object that is there the deletion %+v was seen", got)
	}
	if _, err := s.store.Update(s.Context(), going, application(finalized).json()); err != nil {
		s.Fatalf("Update(): %v", err)
	}
	s.gone(finalized)
	s.eventually("the end of the other is seen", func() bool { return len(of(finalized)) > 0 })
	if got := of(finalized); len(got) != 1 || !cmp.Equal(got[0].Last, going) || got[0].Revision <= number(s.T, going) {
		s.Errorf("the deletion of %+v is %+v", going, got)
	}
	if w.observedFirst(plain) || w.observedFirst(finalized) {
		s.Error("a subscriber was told first")
	}

	cancel()
	cancel() // twice is harmless
	after := s.key(stream.Application)
	s.cached(after, s.create(after, application(after)).ResourceVersion)
	s.delete(after, backends.Preconditions{})
	s.gone(after)
	if got := of(after); len(got) > 0 {
		s.Errorf("after cancel %+v was seen", got)
	}
}

func notifyAfter(s *suite) {
	key := s.key(stream.Application)
	const writes = 20
	var mu sync.Mutex
	shown := map[string]bool{} // resourceVersions a call found in the cache
	cancel := s.subscribe(func(changed stream.ResourceKey) {
		if changed != key {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		object, _ := s.store.Get(key)
		shown[object.ResourceVersion] = true
	})
	defer cancel()
	current := s.create(key, application(key))
	for n := range writes {
		next, err := s.store.Update(s.Context(), current, application(key).specWith("project", "p"+strconv.Itoa(n)).json())
		if err != nil {
			s.Fatalf("Update(): %v", err)
		}
		current = next
	}
	showed := func(resourceVersion string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return shown[resourceVersion]
		}
	}
	s.eventually("a call that finds the last change in the cache", showed(current.ResourceVersion))
	s.delete(key, backends.Preconditions{})
	s.eventually("a call that finds the object gone", showed(""))
}

func neverBack(s *suite) {
	key := s.key(stream.Application)
	const writes = 60
	current := s.create(key, application(key))
	s.cached(key, current.ResourceVersion)
	done := make(chan struct{})
	var watchers sync.WaitGroup
	look := func(what string, newest *uint64) {
		object, ok := s.store.Get(key)
		if !ok {
			s.Errorf("%s: the object is gone", what)
			return
		}
		at := number(s.T, object)
		if at < *newest {
			s.Errorf("%s: resourceVersion %d after %d", what, at, *newest)
		}
		*newest = at
	}
	watchers.Go(func() {
		var newest uint64
		for {
			look("Get()", &newest)
			select {
			case <-done:
				return
			default:
			}
		}
	})
	var mu sync.Mutex
	var newest uint64
	cancel := s.subscribe(func(changed stream.ResourceKey) {
		if changed == key {
			mu.Lock()
			defer mu.Unlock()
			look("Get() in a notification", &newest)
		}
	})
	for n := range writes {
		next, err := s.store.Update(s.Context(), current, application(key).specWith("project", "p"+strconv.Itoa(n)).json())
		if err != nil {
			s.Errorf("Update(): %v", err)
			break
		}
		current = next
	}
	s.cached(key, current.ResourceVersion)
	cancel()
	close(done)
	watchers.Wait()
}

func concurrentWriters(s *suite) {
	const writers, each = 4, 8
	key := s.key(stream.Application)
	s.create(key, application(key).meta("annotations", object{"count": "0"}))
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				if !s.increment(key) {
					return
				}
			}
		})
	}
	all.Wait()
	if got, want := s.metadata(s.read(key)).Annotations["count"], strconv.Itoa(writers*each); got != want {
		s.Errorf("%d writers counted to %s, want %s", writers, got, want)
	}
}

// increment counts one up, from the start again on each conflict.
func (s *suite) increment(key stream.ResourceKey) bool {
	for s.Context().Err() == nil {
		current, err := s.store.Read(s.Context(), key)
		if err != nil {
			s.Errorf("Read(): %v", err)
			return false
		}
		count, err := strconv.Atoi(s.metadata(current).Annotations["count"])
		if err != nil {
			s.Errorf("count: %v", err)
			return false
		}
		_, err = s.store.Update(s.Context(), current, application(key).
			meta("annotations", object{"count": strconv.Itoa(count + 1)}).json())
		switch {
		case err == nil:
			return true
		case !errors.Is(err, stream.ErrConflict):
			s.Errorf("Update() beside other writers = %v, want nil or %v", err, stream.ErrConflict)
			return false
		}
	}
	return false
}

func concurrentCreators(s *suite) {
	const creators = 8
	key := s.key(stream.Application)
	results := make(chan error, creators)
	for range creators {
		go func() {
			_, err := s.store.Create(s.Context(), key, application(key).json())
			results <- err
		}()
	}
	created := 0
	for range creators {
		if err := <-results; err == nil {
			created++
		} else {
			s.wantError("Create() beside others", err, stream.ErrConflict)
		}
	}
	if created != 1 {
		s.Errorf("%d of %d concurrent Create()s took place", created, creators)
	}
}

func cancelled(s *suite) {
	key := s.key(stream.Application)
	created := s.create(key, application(key))
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	_, err := s.store.Read(ctx, key)
	s.wantError("Read()", err, stream.ErrUnavailable)
	_, err = s.store.Update(ctx, created, application(key).specWith("project", "other").json())
	s.wantError("Update()", err, stream.ErrUnavailable)
	s.wantError("Delete()", s.store.Delete(ctx, key, backends.Preconditions{}), stream.ErrUnavailable)
	other := s.key(stream.Application)
	_, err = s.store.Create(ctx, other, application(other).json())
	s.wantError("Create()", err, stream.ErrUnavailable)
	if read := s.read(key); !cmp.Equal(read, created) {
		s.Errorf("object after cancelled calls (-want +got):\n%s", cmp.Diff(created, read))
	}
}

func foreignKeys(s *suite) {
	for _, key := range []stream.ResourceKey{
		{Kind: "Secret", Namespace: Namespace, Name: "x"},
		{Kind: stream.Application, Name: "x"},
		{Kind: stream.Application, Namespace: Namespace},
		{},
	} {
		_, err := s.store.Read(s.Context(), key)
		s.wantError(fmt.Sprintf("Read(%+v)", key), err, stream.ErrRefused)
		_, err = s.store.Create(s.Context(), key, application(key).json())
		s.wantError(fmt.Sprintf("Create(%+v)", key), err, stream.ErrRefused)
		_, err = s.store.Update(s.Context(), backends.Object{Key: key, UID: "x", ResourceVersion: "1"}, application(key).
			json())
		s.wantError(fmt.Sprintf("Update(%+v)", key), err, stream.ErrRefused)
		err = s.store.Delete(s.Context(), key, backends.Preconditions{})
		s.wantError(fmt.Sprintf("Delete(%+v)", key), err, stream.ErrRefused)
		if got, ok := s.store.Get(key); ok {
			s.Errorf("Get(%+v) = %v", key, got)
		}
	}
	if got := s.store.List("Secret", ""); len(got) != 0 {
		s.Errorf("List(Secret) = %v", got)
	}
}
