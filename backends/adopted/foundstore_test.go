package adopted

import (
	"errors"
	"testing"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/stream"
)

// TestFoundStore: processes that write beside each other, one of them late, lose nothing of
// what was found.
func TestFoundStore(t *testing.T) {
	store, ctx := memory.New(memory.Config{Kinds: []stream.Kind{stream.Application, stream.Secret}}), t.Context()
	k := FoundStore{Store: store, Namespace: "argocd"}
	key := stream.ResourceKey{Kind: stream.Application, Namespace: "team", Name: "a"}
	at := func(uid, version string) backends.Object {
		return backends.Object{Key: key, UID: uid, ResourceVersion: version}
	}
	keep := func(o backends.Object, content string) error {
		return k.Save(ctx, o, object.Encode(object.Found{Content: content}))
	}
	kept := func(uid string) *object.Found {
		t.Helper()
		f, err := k.Load(ctx, key, uid)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if f := kept("one"); !f.Lost {
		t.Errorf("before anything is kept: %+v", f)
	}
	for _, step := range []struct {
		o        backends.Object
		content  string
		conflict bool
		want     string
	}{
		{at("one", "7"), "seven", false, "seven"},
		{at("one", "7"), "seven", false, "seven"}, // once more after a crash
		{at("one", "9"), "nine", false, "nine"},   // it changed before it was adopted
		{at("one", "8"), "eight", true, "nine"},   // someone who is behind
		{at("two", "5"), "other", false, "nine"},  // another object of that name
	} {
		err := keep(step.o, step.content)
		if errors.Is(err, stream.ErrConflict) != step.conflict || err != nil && !step.conflict {
			t.Fatalf("keep(%s at %s) = %v", step.o.UID, step.o.ResourceVersion, err)
		}
		if f := kept("one"); f.Lost || f.Content != step.want {
			t.Errorf("after keep(%s at %s) it is %+v, want %s", step.o.UID, step.o.ResourceVersion, f, step.want)
		}
	}
	late := kept("one")
	if err := k.Delete(ctx, key, late); err != nil {
		t.Fatal(err)
	}
	if err := keep(at("one", "20"), "again"); err != nil {
		t.Fatal(err)
	}
	if err := k.Delete(ctx, key, late); err != nil {
		t.Fatal(err)
	}
	if f := kept("one"); f.Lost || f.Content != "again" {
		t.Errorf("a process that was late took away what was kept later: %+v", f)
	}
	if f := kept("two"); f.Content != "other" {
		t.Errorf("the other object's: %+v", f)
	}
}
