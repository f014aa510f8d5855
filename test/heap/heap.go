// Package heap measures what a function takes from the heap, for tests of decoders that a
// peer reaches. It is imported by tests only.
//
//	heap.Bound(t, len(input), func() { got, err = parse(input) })
package heap

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// Of returns how many bytes f takes from the heap in all, with no collection in between:
// more than it can ever hold at a time. Goroutines beside f count with it.
func Of(f func()) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// short is what an input may take however short it is: room for errors, for what the
// runtime allocates beside f, and for the state of a regular expression (37 KiB, which
// package regexp keeps in a sync.Pool). A pool drops one in four of what it is given when
// the race detector is there, so that f may take such a state each time it matches: a few
// of them have room then.
const short = instrumented * 64 << 10

// Bound fails t if f, which reads n bytes of a peer, takes more than eight times as many
// from the heap.
func Bound(t testing.TB, n int, f func()) {
	t.Helper()
	if took, most := Of(f), uint64(8*n+short); took > most {
		t.Errorf("%d bytes take %d of heap, want %d at most", n, took, most)
	}
}
