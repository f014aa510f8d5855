//go:build linux

package main

import (
	"errors"
	"testing"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

func TestByteStore(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), newByteStore()
	key := stream.ResourceKey{Kind: stream.Application, Namespace: edge, Name: "a"}
	var told []stream.ResourceKey
	cancel := s.Subscribe(func(key stream.ResourceKey) { told = append(told, key) })

	made, err := s.Create(ctx, key, text(application("a", edge, edge, "r1")))
	if err != nil || made.UID == "" || made.ResourceVersion != "1" {
		t.Fatalf("Create() = %+v, %v", made, err)
	}
	objects, err := parsed([]backends.Object{made})
	if err != nil {
		t.Fatal(err)
	}
	if meta := objects["a"]["metadata"].(map[string]any); meta["uid"] != made.UID || meta["resourceVersion"] != "1" || meta["name"] != "a" {
		t.Errorf("the object carries metadata %v", meta)
	}
	if _, err := s.Create(ctx, key, made.Raw); !errors.Is(err, stream.ErrConflict) {
		t.Errorf("Create() of what is there: %v", err)
	}
	changed, err := s.Update(ctx, made, text(application("a", edge, edge, "r2")))
	if err != nil || changed.UID != made.UID || changed.ResourceVersion != "2" {
		t.Fatalf("Update() = %+v, %v", changed, err)
	}
	if _, err := s.Update(ctx, made, made.Raw); !errors.Is(err, stream.ErrConflict) {
		t.Errorf("Update() of an older state: %v", err)
	}
	if got, ok := s.Get(key); !ok || got.ResourceVersion != "2" {
		t.Errorf("Get() = %+v, %t", got, ok)
	}
	if got := len(s.List(stream.Application, edge)); got != 1 || len(s.List(stream.AppProject, "")) != 0 || len(s.List(stream.Application, "other")) != 0 {
		t.Errorf("List() holds %d Applications, or what it must not", got)
	}
	if err := s.Delete(ctx, key, backends.Preconditions{ResourceVersion: "1"}); !errors.Is(err, stream.ErrConflict) {
		t.Errorf("Delete() of an older state: %v", err)
	}
	if err := s.Delete(ctx, key, backends.Preconditions{UID: made.UID}); err != nil {
		t.Error(err)
	}
	if _, err := s.Read(ctx, key); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("Read() of what is gone: %v", err)
	}
	if _, err := s.Update(ctx, changed, changed.Raw); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("Update() of what is gone: %v", err)
	}
	if err := s.Delete(ctx, key, backends.Preconditions{}); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("Delete() of what is gone: %v", err)
	}
	if _, err := s.Create(ctx, key, []byte(`{}`)); !errors.Is(err, stream.ErrRefused) {
		t.Errorf("Create() without metadata: %v", err)
	}
	if len(told) != 3 {
		t.Errorf("subscribers were told %d times, want once for each of 3 writes", len(told))
	}
	cancel()
	if _, err := s.Create(ctx, key, made.Raw); err != nil || len(told) != 3 {
		t.Errorf("after cancel %d calls, %v", len(told), err)
	}
}
