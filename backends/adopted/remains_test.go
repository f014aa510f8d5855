package adopted

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/test/kit"
)

// remainsEnv is a spoke whose Applications may be in namespaces beside that of Argo CD.
type remainsEnv struct {
	t     *testing.T
	fault func(memory.Op, stream.ResourceKey) error
	lost  func(memory.Op, stream.ResourceKey) error
	store *memory.Store
}

func newRemainsEnv(t *testing.T) *remainsEnv {
	w := &remainsEnv{t: t}
	ask := func(f *func(memory.Op, stream.ResourceKey) error) func(memory.Op, stream.ResourceKey) error {
		return func(op memory.Op, key stream.ResourceKey) error {
			if *f == nil {
				return nil
			}
			return (*f)(op, key)
		}
	}
	w.store = memory.New(memory.Config{Kinds: []stream.Kind{stream.Application, stream.Secret}, Fault: ask(&w.fault), LostReply: ask(&w.lost)})
	return w
}

// adopt makes an Application of which is kept what was found.
func (w *remainsEnv) adopt(name string) backends.Object {
	w.t.Helper()
	key := stream.ResourceKey{Kind: stream.Application, Namespace: "team-a", Name: name}
	app := object.New(key)
	app.Fields["spec"] = map[string]any{"project": "x"}
	o, err := w.store.Create(w.t.Context(), key, object.Encode(app.Fields))
	if err != nil {
		w.t.Fatal(err)
	}
	if err := (FoundStore{Store: w.store, Namespace: "argocd"}).Save(w.t.Context(), o, object.Encode(object.Found{Content: name})); err != nil {
		w.t.Fatal(err)
	}
	app, err = object.Parse(o)
	if err != nil {
		w.t.Fatal(err)
	}
	app.SetAnnotation(object.SourceUIDKey, "u-1")
	app.SetAnnotation(object.RecordKey, string(object.Encode(record.Record{Hash: "h", Adopted: o.UID})))
	if o, err = w.store.Update(w.t.Context(), o, object.Encode(app.Fields)); err != nil {
		w.t.Fatal(err)
	}
	return o
}

func (w *remainsEnv) end(o backends.Object) {
	w.t.Helper()
	if err := w.store.Delete(w.t.Context(), o.Key, backends.Preconditions{UID: o.UID}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *remainsEnv) remains() *Remains {
	return &Remains{
		Store: w.store, Namespace: "argocd", Log: zerolog.Nop(),
		List: func(context.Context) ([]backends.Object, error) { return w.store.List(stream.Secret, "argocd"), nil },
	}
}

func (w *remainsEnv) kept(o backends.Object) bool {
	w.t.Helper()
	f, err := FoundStore{Store: w.store, Namespace: "argocd"}.Load(w.t.Context(), o.Key, o.UID)
	if err != nil {
		w.t.Fatal(err)
	}
	return !f.Lost
}

// What is kept of an object goes after the object, no matter who deleted it, and not before; what
// another object of that name has instead is no reason to keep it.
func TestRemainsGoAfterTheirObjects(t *testing.T) {
	w := newRemainsEnv(t)
	stays, goes, again := w.adopt("stays"), w.adopt("goes"), w.adopt("again")
	w.end(goes)
	w.end(again)
	second := w.adopt("again")
	if err := w.remains().Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		o    backends.Object
		want bool
	}{"what is there": {stays, true}, "what is gone": {goes, false}, "the first of two": {again, false}, "the second": {second, true}} {
		if got := w.kept(c.o); got != c.want {
			t.Errorf("of %s something is kept: %t, want %t", name, got, c.want)
		}
	}
}

// A process may end before and after each of its calls. Anyone who comes next brings it to its
// end, and takes nothing from what is there.
func TestRemainsAfterADeath(t *testing.T) {
	errDied := fmt.Errorf("died: %w", stream.ErrUnavailable)
	for call := 0; ; call++ {
		w := newRemainsEnv(t)
		stays, goes := w.adopt("stays"), w.adopt("goes")
		w.end(goes)
		died := false
		for _, when := range []*func(memory.Op, stream.ResourceKey) error{&w.fault, &w.lost} {
			n := 0
			*when = func(memory.Op, stream.ResourceKey) error {
				if n++; n > call {
					died = true
					return errDied
				}
				return nil
			}
			if err := w.remains().Remove(t.Context()); err != nil && !errors.Is(err, errDied) {
				t.Fatal(err)
			}
			*when = nil
		}
		if err := w.remains().Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		if w.kept(goes) || !w.kept(stays) {
			t.Errorf("after a death at call %d something is kept of what is gone: %t, and of what is there: %t", call, w.kept(goes), w.kept(stays))
		}
		if !died {
			return
		}
	}
}

// Between the look at the object and the removal the API server may be restored from a
// backup that has both. Then what was found is as it was in the backup, and stays.
func TestRemainsDuringARestore(t *testing.T) {
	w := newRemainsEnv(t)
	o := w.adopt("back")
	backup := w.store.Snapshot()
	w.end(o)
	for _, at := range []memory.Op{memory.OpUpdate, memory.OpDelete} {
		w.fault = func(op memory.Op, _ stream.ResourceKey) error {
			if op == at {
				w.fault = nil
				w.store.Restore(backup, 0)
			}
			return nil
		}
		if err := w.remains().Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, there := w.store.Get(o.Key); !there {
			t.Fatalf("the restore at %s did not bring the object back", at)
		}
		if !w.kept(o) {
			t.Errorf("a restore at %s lost what was found", at)
		}
		w.end(o)
	}
	if err := w.remains().Remove(t.Context()); err != nil || w.kept(o) {
		t.Errorf("afterwards: %v, something is kept: %t", err, w.kept(o))
	}
}

// What may not be read is not gone.
func TestRemainsThatMayNotBeRead(t *testing.T) {
	w := newRemainsEnv(t)
	o := w.adopt("hidden")
	w.end(o)
	w.fault = func(op memory.Op, key stream.ResourceKey) error {
		if op == memory.OpRead && key.Kind == stream.Application {
			return stream.ErrRefused
		}
		return nil
	}
	if err := w.remains().Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.fault = nil; !w.kept(o) {
		t.Error("what was found is gone")
	}
	r := w.remains()
	r.List = func(context.Context) ([]backends.Object, error) { return nil, stream.ErrRefused }
	if err := r.Remove(t.Context()); err != nil {
		t.Errorf("without the right to list: %v", err)
	}
}

// A deletion that is seen is followed at once, and what no one saw is found.
func TestRemainsFollowDeletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRemainsEnv(t)
		one, two := w.adopt("one"), w.adopt("two")
		w.end(one)
		kit.Background(t, w.remains().Run)
		synctest.Wait()
		if w.kept(one) || !w.kept(two) {
			t.Errorf("at first something is kept of what is gone: %t, of the other: %t", w.kept(one), w.kept(two))
		}
		w.end(two)
		synctest.Wait()
		if w.kept(two) {
			t.Error("something is kept of what was seen to go")
		}
	})
}
