//go:build race

package values

// instrumented is how many times what a slice takes when it grows is allocated: code for
// the race detector makes what is appended before it appends it.
const instrumented = 2
