package object

import (
	"sync"
	"testing"

	"github.com/argomesh/argomesh/backends"
)

func TestDecodedOnce(t *testing.T) {
	o, err := Parse(backends.Object{Raw: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	length := func(text string) int { calls++; return len(text) }
	for _, step := range []struct {
		o     Object
		text  string
		calls int
	}{
		{o, "a", 1}, {o, "a", 1},
		{o, "bb", 2}, // what the annotation says now counts, not what it said
		{Object{Key: o.Key, Fields: map[string]any{}}, "bb", 3}, // of no store: each time
		{o, "bb", 3},
	} {
		if got := DecodedOnce(step.o, step.text, length); got != len(step.text) || calls != step.calls {
			t.Fatalf("%q: got %d after %d calls, want %d after %d", step.text, got, calls, len(step.text), step.calls)
		}
	}
	// Another type of the same text is no answer.
	if got := DecodedOnce(o, "bb", func(text string) string { return text + "!" }); got != "bb!" {
		t.Fatalf("got %q of another decoder", got)
	}
}

func TestDecodedOnceConcurrently(t *testing.T) {
	o, err := Parse(backends.Object{Raw: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			text := "text"[:i%4+1]
			for range 1000 {
				if got := DecodedOnce(o, text, func(text string) int { return len(text) }); got != len(text) {
					t.Errorf("%q: got %d", text, got)
					return
				}
			}
		})
	}
	all.Wait()
}
