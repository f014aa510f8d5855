package memory_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/backendtest"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

// maxObjectBytes is what etcd takes by default.
const maxObjectBytes = 3 << 19

func TestStore(t *testing.T) {
	backendtest.Run(t, func(testing.TB) backends.Store {
		return memory.New(memory.Config{MaxObjectBytes: maxObjectBytes})
	})
}

func TestStoreWithLag(t *testing.T) {
	backendtest.Run(t, func(t testing.TB) backends.Store {
		s := &lagging{
			Store: memory.New(memory.Config{MaxObjectBytes: maxObjectBytes, Lag: true}),
			wrote: make(chan struct{}, 1),
		}
		s.wake()
		var wg sync.WaitGroup
		ctx, stop := context.WithCancel(context.Background())
		t.Cleanup(func() { stop(); wg.Wait() })
		wg.Go(func() {
			for {
				select {
				case <-s.wrote:
					s.Deliver(-1)
				case <-ctx.Done():
					return
				}
			}
		})
		return s
	})
}

// lagging delivers in a goroutine of its own, as a watch does.
type lagging struct {
	*memory.Store
	wrote chan struct{}
}

func (l *lagging) wake() {
	select {
	case l.wrote <- struct{}{}:
	default:
	}
}

func (l *lagging) Create(ctx context.Context, key stream.ResourceKey, raw []byte, opts ...backends.WriteOption) (backends.Object, error) {
	defer l.wake()
	return l.Store.Create(ctx, key, raw, opts...)
}

func (l *lagging) Update(ctx context.Context, old backends.Object, raw []byte, opts ...backends.WriteOption) (backends.Object, error) {
	defer l.wake()
	return l.Store.Update(ctx, old, raw, opts...)
}

func (l *lagging) Delete(ctx context.Context, key stream.ResourceKey, pre backends.Preconditions) error {
	defer l.wake()
	return l.Store.Delete(ctx, key, pre)
}

func app(name string) stream.ResourceKey {
	return stream.ResourceKey{Kind: stream.Application, Namespace: "argocd", Name: name}
}

func raw(key stream.ResourceKey, project string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"argoproj.io/v1alpha1","kind":%q,"metadata":{"namespace":%q,"name":%q},"spec":{"project":%q}}`,
		key.Kind, key.Namespace, key.Name, project)
}

func mustCreate(t *testing.T, s *memory.Store, key stream.ResourceKey) backends.Object {
	t.Helper()
	object, err := s.Create(t.Context(), key, raw(key, "a"))
	if err != nil {
		t.Fatalf("Create(): %v", err)
	}
	return object
}

func synced(s *memory.Store) bool {
	select {
	case <-s.Synced():
		return true
	default:
		return false
	}
}

func TestDeliverShowsOneChangeAtATime(t *testing.T) {
	s := memory.New(memory.Config{Lag: true})
	var told []string
	s.Subscribe(func(key stream.ResourceKey) {
		object, _ := s.Get(key)
		told = append(told, key.Name+"@"+object.ResourceVersion)
	})
	a := mustCreate(t, s, app("a"))
	mustCreate(t, s, app("b"))
	a, err := s.Update(t.Context(), a, raw(app("a"), "b"))
	if err != nil {
		t.Fatalf("Update(): %v", err)
	}
	if err := s.Delete(t.Context(), app("b"), backends.Preconditions{}); err != nil {
		t.Fatalf("Delete(): %v", err)
	}

	if got := s.Pending(); got != 5 {
		t.Fatalf("Pending() = %d, want the list and 4 changes", got)
	}
	if synced(s) || len(s.List(stream.Application, "")) != 0 {
		t.Error("the cache shows something before its first delivery")
	}
	if got := s.Deliver(1); got != 1 || !synced(s) || len(s.List(stream.Application, "")) != 0 {
		t.Errorf("Deliver(1) = %d, synced %t; want the empty initial list", got, synced(s))
	}
	if got := s.Deliver(2); got != 2 {
		t.Errorf("Deliver(2) = %d", got)
	}
	if got, want := told, []string{"a@1", "b@2"}; !cmp.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
	if got := s.Deliver(-1); got != 2 {
		t.Errorf("Deliver(-1) = %d, want the rest", got)
	}
	if got, want := told, []string{"a@1", "b@2", "a@3", "b@"}; !cmp.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
	if got := s.List(stream.Application, ""); !cmp.Equal(got, []backends.Object{a}) {
		t.Errorf("List() (-want +got):\n%s", cmp.Diff([]backends.Object{a}, got))
	}
	if got := s.Deliver(1); got != 0 {
		t.Errorf("Deliver(1) of nothing = %d", got)
	}
}

func TestOpenAfterCloseListsWhatIsThere(t *testing.T) {
	first := memory.New(memory.Config{Lag: true})
	mustCreate(t, first, app("a"))
	calls := 0
	first.Subscribe(func(stream.ResourceKey) { calls++ })
	first.Close()
	first.Close()

	second := first.Open()
	b := mustCreate(t, second, app("b"))
	if got := first.Deliver(-1); got != 0 || calls != 0 {
		t.Errorf("a closed client had %d deliveries and told %d times", got, calls)
	}
	if _, err := first.Read(t.Context(), app("a")); !errors.Is(err, stream.ErrUnavailable) {
		t.Errorf("Read() of a closed client = %v, want %v", err, stream.ErrUnavailable)
	}
	if got := second.Deliver(1); got != 1 || !synced(second) {
		t.Fatalf("Deliver(1) = %d, synced %t", got, synced(second))
	}
	if _, ok := second.Get(app("a")); !ok {
		t.Error("the initial list lacks what the first client made")
	}
	if _, ok := second.Get(app("b")); ok {
		t.Error("the initial list has what was made after it")
	}
	second.Deliver(1)
	if got, ok := second.Get(app("b")); !ok || !cmp.Equal(got, b) {
		t.Errorf("Get() (-want +got):\n%s", cmp.Diff(b, got))
	}
}

func TestClientsOfOneServerSeeEachOther(t *testing.T) {
	first := memory.New(memory.Config{})
	second := first.Open()
	var told []stream.ResourceKey
	second.Subscribe(func(key stream.ResourceKey) { told = append(told, key) })
	object := mustCreate(t, first, app("a"))
	if !cmp.Equal(told, []stream.ResourceKey{app("a")}) {
		t.Errorf("told %v", told)
	}
	if got, _ := second.Get(app("a")); !cmp.Equal(got, object) {
		t.Errorf("Get() (-want +got):\n%s", cmp.Diff(object, got))
	}
}

func TestFaults(t *testing.T) {
	var before, after error
	s := memory.New(memory.Config{
		Fault:     func(memory.Op, stream.ResourceKey) error { return before },
		LostReply: func(memory.Op, stream.ResourceKey) error { return after },
	})
	before = stream.ErrUnavailable
	if _, err := s.Create(t.Context(), app("a"), raw(app("a"), "a")); !errors.Is(err, stream.ErrUnavailable) {
		t.Errorf("Create() with a fault = %v", err)
	}
	before = nil
	if _, err := s.Read(t.Context(), app("a")); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("Read() after a fault of Create() = %v, want %v", err, stream.ErrNotFound)
	}
	after = stream.ErrUnavailable
	if _, err := s.Create(t.Context(), app("a"), raw(app("a"), "a")); !errors.Is(err, stream.ErrUnavailable) {
		t.Errorf("Create() with a lost reply = %v", err)
	}
	after = nil
	if _, err := s.Read(t.Context(), app("a")); err != nil {
		t.Errorf("Read() after a lost reply of Create(): %v", err)
	}
}

func TestSimulationsRepeat(t *testing.T) {
	run := func() []backends.Object {
		n := 0
		s := memory.New(memory.Config{
			NewUID: func() string { n++; return fmt.Sprint("uid-", n) },
			Now:    func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC) },
		})
		for _, name := range []string{"c", "a", "b"} {
			mustCreate(t, s, app(name))
		}
		return s.List(stream.Application, "")
	}
	first := run()
	if diff := cmp.Diff(first, run()); diff != "" {
		t.Errorf("two runs differ (-first +second):\n%s", diff)
	}
	var order []string
	for _, object := range first {
		order = append(order, object.Key.Name+" "+object.UID)
	}
	if want := []string{"a uid-2", "b uid-3", "c uid-1"}; !cmp.Equal(order, want) {
		t.Errorf("List() = %v, want %v", order, want)
	}
}

func BenchmarkUpdate(b *testing.B) {
	s := memory.New(memory.Config{})
	key := app("a")
	object, err := s.Create(b.Context(), key, raw(key, "a"))
	if err != nil {
		b.Fatal(err)
	}
	contents := [][]byte{raw(key, "b"), raw(key, "a")}
	for n := 0; b.Loop(); n++ {
		object, err = s.Update(b.Context(), object, contents[n%2])
		if err != nil {
			b.Fatal(err)
		}
	}
}

func TestClosedClientKeepsItsCache(t *testing.T) {
	for name, lag := range map[string]bool{"with lag": true, "without lag": false} {
		t.Run(name, func(t *testing.T) {
			s := memory.New(memory.Config{Lag: lag})
			a := mustCreate(t, s, app("a"))
			s.Deliver(-1)
			other := s.Open()
			s.Close()
			mustCreate(t, other, app("b"))
			if err := other.Delete(t.Context(), app("a"), backends.Preconditions{}); err != nil {
				t.Fatal(err)
			}
			if got, ok := s.Get(app("a")); !ok || !cmp.Equal(got, a) {
				t.Errorf("Get() of a closed client (-want +got):\n%s", cmp.Diff(a, got))
			}
			if _, ok := s.Get(app("b")); ok {
				t.Error("a closed client sees what was made after its end")
			}
		})
	}
}
