package sim

import (
	"sync/atomic"
	"time"
)

// ahead is what a clock shows that is so many nanoseconds ahead. It is never compared
// but as it is written down: a process measures time by another clock, which does not jump.
func ahead(clock *atomic.Int64) time.Time {
	return time.Now().Add(time.Duration(clock.Load())).Round(0)
}

// now is the clock of a process.
func (p *process) now() time.Time { return ahead(&p.site.clock) }

// setClock sets the clock of a place: that of its process, or of its API server and what
// runs beside it.
func (w *Fleet) setClock(c Command) {
	s := w.at(c.Place)
	if c.Verb == APIClock {
		s.apiClock.Store(int64(c.For))
		return
	}
	s.clock.Store(int64(c.For))
}
