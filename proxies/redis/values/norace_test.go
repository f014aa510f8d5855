//go:build !race

package values

const instrumented = 1
