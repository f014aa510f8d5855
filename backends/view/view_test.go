package view_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/schema"
	"github.com/argomesh/argomesh/backends/view"
	"github.com/argomesh/argomesh/stream"
)

var key = stream.ResourceKey{Kind: stream.Application, Namespace: "argocd", Name: "shop"}

// at is the object as a write returned it.
func at(uid, version, raw string) *backends.Object {
	return &backends.Object{Key: key, UID: uid, ResourceVersion: version, Raw: []byte(raw)}
}

// TestView follows one object: what is newest of it, until the cache shows it or someone asks
// the API server.
func TestView(t *testing.T) {
	store := memory.New(memory.Config{})
	v := view.New(store, zerolog.Nop())
	if _, there := v.Newest(key); there || v.Current(key) != nil || v.Len() != 0 {
		t.Fatal("there is something in an empty store")
	}
	stored, err := store.Create(t.Context(), key, []byte(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"namespace":"argocd","name":"shop"},"spec":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	if o, there := v.Newest(key); !there || o.UID != stored.UID {
		t.Fatalf("the cache's object is not shown: %v", o)
	}
	now := time.Unix(1000, 0)
	v.Wrote(key, at(stored.UID, "1000", `{"metadata":{"uid":"`+stored.UID+`","resourceVersion":"1000"}}`), stored.UID, nil, now)
	if o, _ := v.Newest(key); o.ResourceVersion != "1000" || v.Len() != 1 {
		t.Errorf("what a write returned is not newest: %v", o.ResourceVersion)
	}
	last := v.Current(key)
	if last == nil || v.CurrentReusing(key, last) != last {
		t.Error("what is decoded already is decoded again")
	}
	if v.HasUncached() {
		t.Error("an object that the cache shows by its UID is unseen")
	}
	if keys, next := v.Late(now.Add(time.Second)); len(keys) != 0 || !next.Equal(now.Add(view.CatchUpTime)) {
		t.Errorf("late after a second: %v, next at %v", keys, next)
	}
	late := now.Add(view.CatchUpTime)
	if keys, next := v.Late(late); len(keys) != 1 || !next.Equal(late.Add(view.CatchUpTime)) {
		t.Errorf("late after the time to settle: %v, next at %v", keys, next)
	}
	v.Wrote(key, nil, stored.UID, nil, now)
	if _, there := v.Newest(key); there {
		t.Error("the cache has not seen it go, and it is there")
	}
	v.Wrote(key, nil, "another", nil, now)
	if _, there := v.Newest(key); !there || v.Len() != 0 {
		t.Error("another object of that name is not there")
	}
	v.Wrote(key, at("new", "2000", "{}"), "new", nil, now)
	if !v.HasUncached() {
		t.Error("an object that only a write has shown is seen")
	}
}

// TestViewByAnotherDefinition: the cache shows the revision that was written, by the definition
// from before; what the write returned stays the newest until the definition changes.
func TestViewByAnotherDefinition(t *testing.T) {
	store := memory.New(memory.Config{})
	v := view.New(store, zerolog.Nop())
	stored, err := store.Create(t.Context(), key, []byte(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"namespace":"argocd","name":"shop"},"spec":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	planned := map[stream.Kind]*schema.Schema{}
	v.Learn(planned)
	v.Wrote(key, at(stored.UID, stored.ResourceVersion, `{"spec":{"more":1}}`), stored.UID, planned, time.Unix(1000, 0))
	for range 2 {
		if o, _ := v.Newest(key); string(o.Raw) != `{"spec":{"more":1}}` {
			t.Fatalf("newest is %s", o.Raw)
		}
	}
	if keys, next := v.Late(time.Unix(2000, 0)); len(keys) != 0 || !next.IsZero() {
		t.Errorf("what the cache shows is late: %v, %v", keys, next)
	}
	v.Learn(map[stream.Kind]*schema.Schema{stream.Application: nil})
	if o, _ := v.Newest(key); !bytes.Equal(o.Raw, stored.Raw) {
		t.Errorf("by a new definition the newest is %s", o.Raw)
	}
}
