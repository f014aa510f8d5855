//go:build race

package heap

const instrumented = 4
