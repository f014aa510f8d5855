package keyset_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/keyset"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

func TestSet(t *testing.T) {
	key := func(name string) stream.ResourceKey {
		return stream.ResourceKey{Kind: stream.Application, Namespace: "argocd", Name: name}
	}
	s := keyset.New[stream.ResourceKey]()
	signalled := func() bool {
		select {
		case <-s.Signal:
			return true
		default:
			return false
		}
	}
	if signalled() || len(s.Drain()) != 0 {
		t.Fatal("a new set has something")
	}
	for _, name := range []string{"b", "a", "b"} {
		s.Add(key(name))
	}
	if !signalled() || signalled() {
		t.Error("three keys are not one signal")
	}
	if keys := s.Drain(); !slices.Equal(keys, []stream.ResourceKey{key("b"), key("a")}) {
		t.Errorf("took %v", keys)
	}
	s.Add(key("b"))
	if !signalled() || !slices.Equal(s.Drain(), []stream.ResourceKey{key("b")}) {
		t.Error("a key that was taken does not come again")
	}
}

func TestFollow(t *testing.T) {
	store := memory.New(memory.Config{})
	changed, cancel, synced := keyset.Follow(t.Context(), store, stream.Application)
	defer cancel()
	if !synced {
		t.Fatal("the store is not synced")
	}
	put := func(kind stream.Kind, name string) stream.ResourceKey {
		key := stream.ResourceKey{Kind: kind, Namespace: "argocd", Name: name}
		raw := fmt.Appendf(nil, `{"apiVersion":"argoproj.io/v1alpha1","kind":%q,"metadata":{"namespace":"argocd","name":%q},"spec":{}}`, kind, name)
		if _, err := store.Create(t.Context(), key, raw); err != nil {
			t.Fatal(err)
		}
		return key
	}
	put(stream.AppProject, "other-kind")
	want := put(stream.Application, "a")
	<-changed.Signal
	if keys := changed.Drain(); !slices.Equal(keys, []stream.ResourceKey{want}) {
		t.Errorf("took %v", keys)
	}
	cancel()
	put(stream.Application, "after-cancel")
	if keys := changed.Drain(); len(keys) != 0 {
		t.Errorf("after it was cancelled: %v", keys)
	}
	done, end := context.WithCancel(t.Context())
	end()
	if _, cancel, synced := keyset.Follow(done, neverSynced{store}, stream.Application); synced {
		t.Error("a store that is never synced is")
	} else {
		cancel()
	}
}

type neverSynced struct{ backends.Store }

func (neverSynced) Synced() <-chan struct{} { return nil }
