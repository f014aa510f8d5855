package live

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/test/heap"
)

// A status is what a spoke writes: of it so many versions are asked about, each once.
func FuzzVersionsOf(f *testing.F) {
	for _, seed := range []string{
		`{"status":{"resources":[{"group":"apps","version":"v1"},{"version":"v1"},{"group":"apps","version":"v1"}]}}`,
		`{"status":{"resources":[{},{},{}]}}`, `{"status":{"resources":{}}}`, `{"status":null}`, `[]`, "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var versions []schema.GroupVersion
		took := heap.Of(func() { versions = versionsOf(backends.Object{Raw: raw}) })
		if most := uint64(64*len(raw) + 256<<10); took > most {
			t.Errorf("%d bytes take %d of heap, want %d at most", len(raw), took, most)
		}
		seen := map[schema.GroupVersion]bool{}
		for _, v := range versions {
			if seen[v] {
				t.Errorf("%s is there twice", v)
			}
			seen[v] = true
		}
		if len(versions) > maxKinds {
			t.Errorf("there are %d versions, want %d at most", len(versions), maxKinds)
		}
	})
}
