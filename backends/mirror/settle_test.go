package mirror

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/argomesh/argomesh/stream"
)

// TestBurstIsForgotten lets there be few and many of what is under way.
func TestBurstIsForgotten(t *testing.T) {
	key := func(i int) stream.ResourceKey {
		return stream.ResourceKey{Kind: stream.Application, Namespace: "edge-1", Name: fmt.Sprint("app-", i)}
	}
	for name, test := range map[string]struct {
		entries int
		want    bool // the memory of it is given back
	}{
		"few":  {maxSpare, false},
		"many": {maxSpare + 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := &loop{jobs: map[stream.ResourceKey]*job{}}
			for i := range test.entries {
				l.jobs[key(i)] = &job{}
			}
			before := reflect.ValueOf(l.jobs).Pointer()
			l.settle()
			for i := range test.entries - 1 {
				delete(l.jobs, key(i))
				l.settle()
			}
			if reflect.ValueOf(l.jobs).Pointer() != before || len(l.jobs) != 1 {
				t.Fatal("settle() forgot what is under way")
			}
			delete(l.jobs, key(test.entries-1))
			l.settle()
			if got := reflect.ValueOf(l.jobs).Pointer() != before; got != test.want {
				t.Errorf("memory given back: %t, want %t", got, test.want)
			}
			l.jobs[key(0)] = &job{} // there is a map for the next
		})
	}
}
