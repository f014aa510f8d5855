//go:build !race

package heap

// instrumented is how many times as much short leaves room for when the race detector is
// compiled in.
const instrumented = 1
