//go:build linux

package main

import (
	"math"
	"slices"
	"time"
)

// quantile returns the smallest value that at least the share q of all values does
// not exceed (nearest rank); q is from 0 to 1. It is zero without values.
func quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// median is the quantile for one half.
func median(values []time.Duration) time.Duration { return quantile(values, 0.5) }

// milliseconds returns d as a number of milliseconds.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
