package warmplan

import (
	"bytes"
	"compress/gzip"
	"testing"

	"github.com/argomesh/argomesh/test/heap"
)

// However long the first part of a tree is, and whatever it unpacks to, to look for the number of its parts takes little.
func FuzzShardsOf(f *testing.F) {
	for _, seed := range []string{
		`{"nodes":[],"shardsCount":3}`, `{"shardsCount":99999999999}`, `{"a":{"shardsCount":3}}`, `{"a":"\"shardsCount\":7"}`, `{"shardsCount":"2"}`, `[`, "",
	} {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = w.Write([]byte(seed)) // into memory
		_ = w.Close()
		f.Add([]byte(seed), false)
		f.Add(packed.Bytes(), true)
	}
	f.Fuzz(func(t *testing.T, value []byte, compressed bool) {
		const most = 256 << 10
		var n int
		if took := heap.Of(func() { n = ShardsOf(value, compressed) }); took > most {
			t.Errorf("%d bytes take %d of heap, want %d at most", len(value), took, most)
		}
		if n < 1 || n > maxShards || n > 1 && !compressed && !bytes.Contains(value, []byte(shardsName)) {
			t.Errorf("ShardsOf(%q) = %d", value, n)
		}
	})
}
