// Package pause is how long to wait before something is done again.
package pause

import "time"

// Shorter returns the smaller of two pauses, where zero means that nothing is to be done
// again.
func Shorter(a, b time.Duration) time.Duration {
	switch {
	case a == 0:
		return b
	case b == 0:
		return a
	}
	return min(a, b)
}

const (
	// Most bounds the pause between two restores.
	Most = time.Minute
	// Calm is how long after the last restore the next is the first again.
	Calm = 10 * time.Minute
)

// Restores remembers how often of late an object was restored that someone else changed,
// so that two who want different things do not write without end. The zero value is none.
// It must not be used concurrently.
type Restores struct {
	count int
	last  time.Time
}

// Wait returns how long to wait before the next restore: nothing at first, then first, and
// twice as long each time, up to [Most]. It is zero or less when the time has come.
func (r *Restores) Wait(first time.Duration, now time.Time) time.Duration {
	if now.Sub(r.last) > Calm {
		r.count = 0
	}
	if r.count == 0 {
		return 0
	}
	return min(first<<min(r.count-1, 10), Most) - now.Sub(r.last)
}

// Restored counts a restore.
func (r *Restores) Restored(now time.Time) {
	r.count++
	r.last = now
}
