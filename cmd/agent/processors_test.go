package main

import "testing"

// Of any number of processors the spoke has half, and the agent one at least.
func TestHalfOfTheProcessors(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 64: 32} {
		if got := halfOf(n); got != want {
			t.Errorf("of %d processors it has %d, want %d", n, got, want)
		}
	}
}
