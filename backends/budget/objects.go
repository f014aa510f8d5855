package budget

import "time"

const (
	// objectBurst is how many times an object may be written at once, and objectPause how
	// long it is to one time more.
	objectBurst = 12
	objectPause = 2 * time.Second
)

// Objects are the allowances of single objects, by key. The zero value is all full. It is
// not safe for concurrent use.
type Objects[K comparable] struct {
	of        map[K]allowance
	cleanedAt time.Time
}

// allowance is what is left of an object's writes; -objectBurst at least.
type allowance struct {
	left float64
	at   time.Time // of the last write, at which left was left
}

func (a allowance) now(now time.Time) float64 {
	return min(objectBurst, a.left+max(now.Sub(a.at), 0).Seconds()/objectPause.Seconds())
}

// Wait is how long an object is not to be written; zero for not at all. What is First
// waits no longer than one pause, however often the object was written before.
func (o *Objects[K]) Wait(key K, class Class, now time.Time) time.Duration {
	a, known := o.of[key]
	if !known {
		return 0
	}
	left := a.now(now)
	if left >= 1 {
		return 0
	}
	wait := time.Duration((1 - left) * float64(objectPause))
	if class == First {
		wait = min(wait, max(objectPause-max(now.Sub(a.at), 0), 0))
	}
	return wait
}

// Wrote notes so many writes of an object.
func (o *Objects[K]) Wrote(key K, writes int, now time.Time) {
	if writes <= 0 {
		return
	}
	if o.of == nil {
		o.of = map[K]allowance{}
	}
	left := float64(objectBurst)
	if a, known := o.of[key]; known {
		left = a.now(now)
	}
	o.of[key] = allowance{left: max(left-float64(writes), -objectBurst), at: now}
	o.forgetFull(now)
}

// Len is how many are not full, or were not when that was last looked at.
func (o *Objects[K]) Len() int { return len(o.of) }

// forgetFull forgets those that are full again.
func (o *Objects[K]) forgetFull(now time.Time) {
	if now.Sub(o.cleanedAt) < objectBurst*objectPause {
		return
	}
	o.cleanedAt = now
	for key, a := range o.of {
		if a.now(now) >= objectBurst {
			delete(o.of, key)
		}
	}
}
