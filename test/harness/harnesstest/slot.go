//go:build linux

package harnesstest

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

// maxBusy is how many tests of a process keep servers busy at a time. go test's own
// limit counts tests that wait for one another, too.
const maxBusy = 6

// busy are the tests that do.
var busy = slots{free: maxBusy, held: map[string]*slot{}}

type slots struct {
	mu      sync.Mutex // guards the fields below
	free    int
	held    map[string]*slot // by the name of the test
	waiting []*slot          // in the order of their coming
	begun   []string         // what tests with a place share, in the order of the first
}

// slot is that of a test and its subtests.
type slot struct {
	shares string
	users  int
	taken  chan struct{} // closed once it is
}

// Busy waits until fewer than six other tests keep servers busy, and counts this one
// until it ends. shares names the servers that the test shares with others; empty means
// that it has its own. Tests that share what was begun first come first, so that it is
// done with early and ends. A subtest shares the place of its test, so that none waits
// for its own parent.
func Busy(t testing.TB, shares string) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	s := busy.join(name, shares)
	<-s.taken
	t.Cleanup(func() { busy.leave(name, s) })
}

func (b *slots) join(name, shares string) *slot {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.held[name]
	if s == nil {
		s = &slot{shares: shares, taken: make(chan struct{})}
		b.held[name] = s
		b.waiting = append(b.waiting, s)
		b.give()
	}
	s.users++
	return s
}

func (b *slots) leave(name string, s *slot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(b.held, name)
		b.free++
		b.give()
	}
}

// give gives free places to those who wait.
func (b *slots) give() {
	for b.free > 0 && len(b.waiting) > 0 {
		next := 0
		for i, s := range b.waiting {
			if b.rank(s) < b.rank(b.waiting[next]) {
				next = i
			}
		}
		s := b.waiting[next]
		b.waiting = slices.Delete(b.waiting, next, next+1)
		if s.shares != "" && !slices.Contains(b.begun, s.shares) {
			b.begun = append(b.begun, s.shares)
		}
		b.free--
		close(s.taken)
	}
}

// rank is lower for tests that come earlier.
func (b *slots) rank(s *slot) int {
	if i := slices.Index(b.begun, s.shares); i >= 0 {
		return i
	}
	return len(b.begun)
}
