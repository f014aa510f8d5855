//go:build linux

package harnesstest

import (
	"strings"
	"sync"
	"testing"
)

// maxBusy is how many tests of a process keep servers busy at a time. go test's own
// limit counts tests that wait for one another, too.
const maxBusy = 6

// busy are the tests that do.
var busy = slots{free: make(chan struct{}, maxBusy), held: map[string]*slot{}}

type slots struct {
	free chan struct{} // full when nothing is

	mu   sync.Mutex // guards held
	held map[string]*slot
}

// slot is that of a test and its subtests.
type slot struct {
	users int
	taken chan struct{} // closed once it is
}

// Busy waits until fewer than six other tests keep servers busy, and counts this one
// until it ends. A subtest shares the place of its test, so that none waits for its
// own parent.
func Busy(t testing.TB) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	busy.mu.Lock()
	s := busy.held[name]
	first := s == nil
	if first {
		s = &slot{taken: make(chan struct{})}
		busy.held[name] = s
	}
	s.users++
	busy.mu.Unlock()
	if first {
		busy.free <- struct{}{}
		close(s.taken)
	}
	<-s.taken
	t.Cleanup(func() {
		busy.mu.Lock()
		defer busy.mu.Unlock()
		if s.users--; s.users == 0 {
			delete(busy.held, name)
			<-busy.free
		}
	})
}
