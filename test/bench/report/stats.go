package report

import (
	"math"
	"slices"
	"time"
)

// Quantile returns the smallest value that at least the share q of all values does
// not exceed (nearest rank); q is from 0 to 1. It is zero without values.
func Quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Median is the quantile for one half.
func Median(values []time.Duration) time.Duration { return Quantile(values, 0.5) }

// Milliseconds returns d as a number of milliseconds.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
