package sessions

import (
	"fmt"
	"testing"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// withheld is a hold of so many Applications, of which every other ends with its workloads.
func withheld(n int) link.Withheld {
	w := link.Withheld{ID: "hold-1", Total: n}
	for i := range n {
		key := stream.EntryKey{Collection: stream.Applications, Namespace: "team", Name: fmt.Sprintf("app-%05d", i)}
		if w.Keys = append(w.Keys, key); i%2 == 1 {
			w.Ending = append(w.Ending, key)
		}
	}
	return w
}

func onHub(entry stream.EntryKey) (stream.ResourceKey, bool) {
	return stream.ResourceKey{Kind: stream.Application, Namespace: "hub-" + entry.Namespace, Name: entry.Name}, true
}

func TestHeldOf(t *testing.T) {
	if held := heldOf(onHub, link.Withheld{}); held != nil {
		t.Errorf("of nothing: %+v", held)
	}
	held := heldOf(onHub, withheld(5))
	if held.Total != 5 || held.WithWorkloads != 2 || len(held.Objects) != 5 {
		t.Fatalf("%+v", held)
	}
	for i, o := range held.Objects {
		if o.Name != fmt.Sprintf("app-%05d", i) || o.Namespace != "hub-team" || o.WithWorkloads != (i%2 == 1) {
			t.Errorf("%d is %+v", i, o)
		}
	}
}

// BenchmarkHeldOf is what is done under the lock of all sessions, at each count of an agent.
func BenchmarkHeldOf(b *testing.B) {
	for _, n := range []int{1000, 10000, 50000} {
		w := withheld(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				heldOf(onHub, w)
			}
		})
	}
}
