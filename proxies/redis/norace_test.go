//go:build !race

package redis

const instrumented = 1
