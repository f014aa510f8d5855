// Package notify wakes who waits for a change.
//
// Who waits asks for the channel first, and then looks at what may change: a change that
// comes in between closes the channel, or leaves a value in it, so none is missed.
package notify

import "sync"

// Broadcast wakes all who wait. The zero value is ready. Its methods may be called
// concurrently, also with locks held: they wait for no one.
type Broadcast struct {
	mu   sync.Mutex    // guards next
	next chan struct{} // nil while no one waits
}

// Next returns a channel that is closed by the next call of Notify.
func (b *Broadcast) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

// Notify wakes all who have asked for the channel since it was called last.
func (b *Broadcast) Notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}

// Signal wakes one who waits: it has a value while it was told and no one has looked since.
type Signal chan struct{}

// NewSignal returns one that was not told.
func NewSignal() Signal { return make(Signal, 1) }

// Notify leaves a value, if there is none. It does not block.
func (s Signal) Notify() {
	select {
	case s <- struct{}{}:
	default: // who waits is to look already
	}
}
