package mirror

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/argomesh/argomesh/backends/memory"
	"github.com/argomesh/argomesh/backends/ownership/ownershiptest"
	"github.com/argomesh/argomesh/stream"
)

// TestBurstIsForgotten lets there be few and many of what is under way.
func TestBurstIsForgotten(t *testing.T) {
	key := func(i int) stream.EntryKey {
		return stream.EntryKey{Collection: stream.Applications, Name: fmt.Sprint("app-", i)}
	}
	for name, test := range map[string]struct {
		entries int
		want    bool // the memory of it is given back
	}{
		"few":  {maxSpare, false},
		"many": {maxSpare + 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(&Mirror{cfg: Config{Rules: ownershiptest.Rules(t, stream.Hub, stream.Managed), Store: memory.New(memory.Config{})}})
			for i := range test.entries {
				l.outbox.made[key(i)] = made{}
			}
			before := reflect.ValueOf(l.outbox.made).Pointer()
			l.settle()
			for i := range test.entries - 1 {
				delete(l.outbox.made, key(i))
				l.settle()
			}
			if reflect.ValueOf(l.outbox.made).Pointer() != before || len(l.outbox.made) != 1 {
				t.Fatal("settle() forgot what is under way")
			}
			delete(l.outbox.made, key(test.entries-1))
			l.settle()
			if got := reflect.ValueOf(l.outbox.made).Pointer() != before; got != test.want {
				t.Errorf("memory given back: %t, want %t", got, test.want)
			}
			l.outbox.made[key(0)] = made{} // there is a map for the next
		})
	}
}
