package redis

import (
	"sync"
	"time"

	"github.com/argomesh/argomesh/internal/notify"
)

const (
	// maxMessages bounds the messages that wait for one caller, and maxMessageBytes
	// their payloads; a caller that reads none of so many different ones is closed, as
	// Redis does.
	maxMessages     = 1024
	maxMessageBytes = 8 << 20
)

// message is what is sent to a caller, under its own name for the channel. Without a
// payload it says that there is something to look at.
type message struct {
	channel, payload string
	at               time.Time
}

// outbox holds the messages that wait for a caller.
type outbox struct {
	ready notify.Signal // has a value when there are messages

	mu      sync.Mutex // guards what follows
	waiting []message
	bytes   int
	slow    bool
}

func newOutbox() *outbox { return &outbox{ready: notify.NewSignal()} }

// deliver queues a message. One that waits already does for another like it.
func (b *outbox) deliver(m message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.waiting {
		if w.channel == m.channel && w.payload == m.payload {
			return
		}
	}
	if len(b.waiting) == maxMessages || b.bytes+len(m.payload) > maxMessageBytes {
		b.slow = true
	} else {
		b.waiting, b.bytes = append(b.waiting, m), b.bytes+len(m.payload)
	}
	b.ready.Notify()
}

// drain returns the messages that wait, and false when there were too many.
func (b *outbox) drain() ([]message, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.waiting
	b.waiting, b.bytes = nil, 0
	return m, !b.slow
}
