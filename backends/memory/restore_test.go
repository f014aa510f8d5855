package memory_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/stream"
)

func names(s *memory.Store) []string {
	var out []string
	for _, o := range s.List(stream.Application, "") {
		out = append(out, o.Key.Name+"@"+o.ResourceVersion)
	}
	return out
}

func TestRestore(t *testing.T) {
	for name, c := range map[string]struct {
		bump uint64
		next string
	}{
		"gives out revisions again":             {next: "d@3"},
		"goes on from beyond a bumped revision": {bump: 100, next: "d@103"},
	} {
		t.Run(name, func(t *testing.T) {
			s := memory.New(memory.Config{})
			mustCreate(t, s, app("a"))
			b := mustCreate(t, s, app("b"))
			backup := s.Snapshot()
			if err := s.Delete(t.Context(), app("a"), backends.Preconditions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Update(t.Context(), b, raw(app("b"), "later")); err != nil {
				t.Fatal(err)
			}
			mustCreate(t, s, app("c"))
			var told []string
			s.Subscribe(func(key stream.ResourceKey) { told = append(told, key.Name) })
			told = nil

			s.Restore(backup, c.bump)

			if diff := cmp.Diff([]string{"a@1", "b@2"}, names(s)); diff != "" {
				t.Errorf("List() after the restore (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"b", "c", "a", "b"}, told); diff != "" {
				t.Errorf("told of what was and what is (-want +got):\n%s", diff)
			}
			mustCreate(t, s, app("d"))
			if got := names(s); got[len(got)-1] != c.next {
				t.Errorf("the next object is %s, want %s", got[len(got)-1], c.next)
			}
		})
	}
}

func TestRestoreTakesWhatWasNotDelivered(t *testing.T) {
	s := memory.New(memory.Config{Lag: true})
	mustCreate(t, s, app("a"))
	backup := s.Snapshot()
	s.Deliver(-1)
	mustCreate(t, s, app("b"))
	s.Restore(backup, 0)
	if got := s.Pending(); got != 1 {
		t.Errorf("Pending() = %d, want the list alone", got)
	}
	s.Deliver(-1)
	if diff := cmp.Diff([]string{"a@1"}, names(s)); diff != "" {
		t.Errorf("List() (-want +got):\n%s", diff)
	}
	if _, err := s.Read(t.Context(), app("b")); !errors.Is(err, stream.ErrNotFound) {
		t.Errorf("Read() of what the restore took = %v", err)
	}
}

func TestDeliverAny(t *testing.T) {
	s := memory.New(memory.Config{Lag: true})
	last := func(n int) int { return n - 1 }
	a := mustCreate(t, s, app("a"))
	mustCreate(t, s, app("b"))
	if _, err := s.Update(t.Context(), a, raw(app("a"), "b")); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, s, app("c"))
	var told []string
	s.Subscribe(func(key stream.ResourceKey) {
		o, _ := s.Get(key)
		told = append(told, key.Name+"@"+o.ResourceVersion)
	})
	for s.DeliverAny(last) {
	}
	if diff := cmp.Diff([]string{"c@4", "b@2", "a@1", "a@3"}, told); diff != "" {
		t.Errorf("delivered (-want +got):\n%s", diff)
	}
}

func TestJournal(t *testing.T) {
	var got []string
	s := memory.New(memory.Config{Journal: func(a memory.Accepted) {
		got = append(got, fmt.Sprint(a.Client, " ", a.Op, " ", a.Object.Key.Name, " ", a.Gone))
	}})
	backup := s.Snapshot()
	o := mustCreate(t, s, app("a"))
	other := s.OpenAs("other")
	o, err := other.Update(t.Context(), o, raw(app("a"), "b"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Update(t.Context(), o, o.Raw); err != nil { // no change
		t.Fatal(err)
	}
	if err := other.Delete(t.Context(), app("a"), backends.Preconditions{}); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, s, app("b"))
	s.Restore(backup, 0)
	want := []string{" create a false", "other update a false", "other delete a true", " create b false", " restore b true"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("journal (-want +got):\n%s", diff)
	}
}

func TestSnapshotAndRevision(t *testing.T) {
	s := memory.New(memory.Config{})
	a := mustCreate(t, s, app("a"))
	backup := s.Snapshot()
	mustCreate(t, s, app("b"))
	if got, ok := backup.Get(app("a")); !ok || !cmp.Equal(got, a) {
		t.Errorf("Get() of a backup (-want +got):\n%s", cmp.Diff(a, got))
	}
	if _, ok := backup.Get(app("b")); ok {
		t.Error("the backup has what was made after it")
	}
	if got := s.Revision(); got != 2 {
		t.Errorf("Revision() = %d, want 2", got)
	}
	s.Restore(backup, 10)
	if got := s.Revision(); got != 11 {
		t.Errorf("Revision() after a restore = %d, want that of the backup and the bump", got)
	}
}
