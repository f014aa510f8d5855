//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/google/uuid"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

// byteStore is a backends.Store that keeps bytes and does nothing else an API server
// does: no validation, no generations, no finalizers. backends/memory does all that,
// and takes longer for one write than a link for one change. Its cache is always
// current, and subscribers are told in the goroutine of the write.
type byteStore struct {
	synced chan struct{} // closed

	mu          sync.RWMutex // guards what follows
	revision    uint64
	objects     map[stream.ResourceKey]backends.Object
	subscribers map[int]func(stream.ResourceKey)
}

var _ backends.Store = (*byteStore)(nil)

func newByteStore() *byteStore {
	s := &byteStore{
		synced: make(chan struct{}), objects: map[stream.ResourceKey]backends.Object{}, subscribers: map[int]func(stream.ResourceKey){},
	}
	close(s.synced)
	return s
}

// Subscribe implements backends.Store.
func (s *byteStore) Subscribe(changed func(stream.ResourceKey)) (cancel func()) {
	s.mu.Lock()
	id := len(s.subscribers)
	s.subscribers[id] = changed
	keys := make([]stream.ResourceKey, 0, len(s.objects))
	for key := range s.objects {
		keys = append(keys, key)
	}
	s.mu.Unlock()
	for _, key := range keys {
		changed(key)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.subscribers[id] = func(stream.ResourceKey) {}
	}
}

// Deletions implements backends.Store for those who do without.
func (s *byteStore) Deletions(func(backends.Deletion)) (cancel func()) { return func() {} }

// Synced implements backends.Store.
func (s *byteStore) Synced() <-chan struct{} { return s.synced }

// Get implements backends.Store.
func (s *byteStore) Get(key stream.ResourceKey) (backends.Object, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	o, ok := s.objects[key]
	return o, ok
}

// List implements backends.Store.
func (s *byteStore) List(kind stream.Kind, namespace string) []backends.Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var found []backends.Object
	for key, o := range s.objects {
		if key.Kind == kind && (namespace == "" || key.Namespace == namespace) {
			found = append(found, o)
		}
	}
	return found
}

// Read implements backends.Store.
func (s *byteStore) Read(_ context.Context, key stream.ResourceKey) (backends.Object, error) {
	o, ok := s.Get(key)
	if !ok {
		return o, fmt.Errorf("read %s: %w", key, stream.ErrNotFound)
	}
	return o, nil
}

// Create implements backends.Store.
func (s *byteStore) Create(_ context.Context, key stream.ResourceKey, raw []byte, _ ...backends.WriteOption) (backends.Object, error) {
	return s.write(key, raw, func(_ backends.Object, there bool) (uid string, err error) {
		if there {
			return "", stream.ErrConflict
		}
		return uuid.NewString(), nil
	})
}

// Update implements backends.Store.
func (s *byteStore) Update(_ context.Context, old backends.Object, raw []byte, _ ...backends.WriteOption) (backends.Object, error) {
	return s.write(old.Key, raw, func(now backends.Object, there bool) (uid string, err error) {
		switch {
		case !there:
			return "", stream.ErrNotFound
		case now.UID != old.UID || now.ResourceVersion != old.ResourceVersion:
			return "", stream.ErrConflict
		}
		return now.UID, nil
	})
}

// Delete implements backends.Store, for objects without finalizers.
func (s *byteStore) Delete(_ context.Context, key stream.ResourceKey, pre backends.Preconditions) error {
	s.mu.Lock()
	now, there := s.objects[key]
	switch {
	case !there:
		s.mu.Unlock()
		return fmt.Errorf("delete %s: %w", key, stream.ErrNotFound)
	case pre.UID != "" && pre.UID != now.UID, pre.ResourceVersion != "" && pre.ResourceVersion != now.ResourceVersion:
		s.mu.Unlock()
		return fmt.Errorf("delete %s: %w", key, stream.ErrConflict)
	}
	s.revision++
	delete(s.objects, key)
	s.unlockAndTell(key)
	return nil
}

func (s *byteStore) write(key stream.ResourceKey, raw []byte, check func(now backends.Object, there bool) (uid string, err error)) (backends.Object, error) {
	content, meta, err := split(raw)
	if err != nil {
		return backends.Object{}, fmt.Errorf("write %s: %w: %w", key, stream.ErrRefused, err)
	}
	s.mu.Lock()
	now, there := s.objects[key]
	uid, err := check(now, there)
	if err != nil {
		s.mu.Unlock()
		return backends.Object{}, fmt.Errorf("write %s: %w", key, err)
	}
	s.revision++
	o := backends.Object{Key: key, UID: uid, ResourceVersion: strconv.FormatUint(s.revision, 10)}
	meta["uid"], meta["resourceVersion"] = text(o.UID), text(o.ResourceVersion)
	content["metadata"] = text(meta)
	o.Raw = text(content)
	s.objects[key] = o
	s.unlockAndTell(key)
	return o, nil
}

// split decodes no more of an object than where its parts are.
func split(raw []byte) (content, meta map[string]json.RawMessage, err error) {
	if err := json.Unmarshal(raw, &content); err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(content["metadata"], &meta); err != nil {
		return nil, nil, err
	}
	if meta == nil {
		return nil, nil, errors.New("no metadata")
	}
	return content, meta, nil
}

// unlockAndTell is called with mu locked.
func (s *byteStore) unlockAndTell(key stream.ResourceKey) {
	told := make([]func(stream.ResourceKey), 0, len(s.subscribers))
	for _, changed := range s.subscribers {
		told = append(told, changed)
	}
	s.mu.Unlock()
	for _, changed := range told {
		changed(key)
	}
}
