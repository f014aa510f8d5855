package appevents

import (
	"sync"
	"time"
)

// window lets so many pass within any span. Its zero value has no limits and is not used.
type window struct {
	most  int
	span  time.Duration
	times []time.Time // of the last that passed, at most most, oldest first
}

// free is when the next one may pass, which may be over.
func (w *window) free() time.Time {
	if len(w.times) < w.most {
		return time.Time{}
	}
	return w.times[0].Add(w.span)
}

// pass notes that one passes at a time, which is not before that of the last.
func (w *window) pass(at time.Time) {
	if len(w.times) == w.most {
		copy(w.times, w.times[1:])
		w.times = w.times[:w.most-1]
	}
	w.times = append(w.times, at)
}

// idle reports whether what has passed restrains nothing any more.
func (w *window) idle(now time.Time) bool {
	return len(w.times) == 0 || !w.times[len(w.times)-1].Add(w.span).After(now)
}

// CommonRate is how many events of all agents a hub shows in any second.
const CommonRate = 50

// Common is the rate of all agents of a hub together. Its methods may be called concurrently.
type Common struct {
	mu     sync.Mutex // guards window
	window window
}

// NewCommon returns one by which nothing has passed.
func NewCommon() *Common { return &Common{window: window{most: CommonRate, span: time.Second}} }

// Reserve returns when the caller may show one event: the first moment that no one has. Who
// has one moment at a time waits not longer than the others that wait.
func (c *Common) Reserve(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := now
	if n := len(c.window.times); n > 0 && c.window.times[n-1].After(at) {
		at = c.window.times[n-1]
	}
	if free := c.window.free(); free.After(at) {
		at = free
	}
	c.window.pass(at)
	return at
}
