package heap_test

import (
	"testing"

	"github.com/argomesh/argomesh/test/heap"
)

var kept []byte // so that nothing of it is on the stack

// What is taken is counted, also what is let go of at once.
func TestOf(t *testing.T) {
	const size, times = 1 << 20, 3
	took := heap.Of(func() {
		for range times {
			kept = make([]byte, size)
		}
	})
	if took < times*size || took > times*size+size/2 {
		t.Errorf("%d times %d bytes are %d", times, size, took)
	}
}

// recorder is a test that notes that it failed.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }

// Eight times its bytes are not too much, more is.
func TestBound(t *testing.T) {
	const n = 1 << 20
	for factor, want := range map[int]bool{1: false, 8: false, 9: true} {
		r := &recorder{TB: t}
		heap.Bound(r, n, func() { kept = make([]byte, factor*n) })
		if r.failed != want {
			t.Errorf("%d times its bytes: failed = %t, want %t", factor, r.failed, want)
		}
	}
}
