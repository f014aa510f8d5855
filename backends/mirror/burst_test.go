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
				l.source.outbox.contentCache[key(i)] = cachedContent{}
			}
			before := reflect.ValueOf(l.source.outbox.contentCache).Pointer()
			l.work.shrink()
			for i := range test.entries - 1 {
				delete(l.source.outbox.contentCache, key(i))
				l.work.shrink()
			}
			if reflect.ValueOf(l.source.outbox.contentCache).Pointer() != before || len(l.source.outbox.contentCache) != 1 {
				t.Fatal("settle() forgot what is under way")
			}
			delete(l.source.outbox.contentCache, key(test.entries-1))
			l.work.shrink()
			if got := reflect.ValueOf(l.source.outbox.contentCache).Pointer() != before; got != test.want {
				t.Errorf("memory given back: %t, want %t", got, test.want)
			}
			l.source.outbox.contentCache[key(0)] = cachedContent{} // there is a map for the next
		})
	}
}
