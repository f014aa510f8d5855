package notify_test

import (
	"sync"
	"testing"

	"github.com/argomesh/argomesh/internal/notify"
)

func told(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestBroadcast(t *testing.T) {
	var b notify.Broadcast
	b.Notify() // no one waits
	first, second := b.Next(), b.Next()
	if told(first) || told(second) {
		t.Fatal("who asks after a change is told of it")
	}
	b.Notify()
	if !told(first) || !told(second) {
		t.Error("not all who wait are told")
	}
	if told(b.Next()) {
		t.Error("who asks again is told of the change before")
	}
}

// Who asks for the channel before he looks misses nothing, no matter who tells meanwhile.
func TestBroadcastMissesNothing(t *testing.T) {
	var b notify.Broadcast
	var mu sync.Mutex
	n, ended := 0, 0
	const changes = 1000
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for range changes {
				mu.Lock()
				n++
				mu.Unlock()
				b.Notify()
			}
		})
		work.Go(func() {
			for {
				changed := b.Next()
				mu.Lock()
				over := n == 4*changes
				if over {
					ended++
				}
				mu.Unlock()
				if over {
					return
				}
				<-changed
			}
		})
	}
	work.Wait() // or one waits for ever
	if ended != 4 {
		t.Errorf("%d of 4 that wait have seen the last change", ended)
	}
}

func TestSignal(t *testing.T) {
	s := notify.NewSignal()
	if told(s) {
		t.Error("a new one is told")
	}
	s.Notify()
	s.Notify()
	if !told(s) || told(s) {
		t.Error("two calls leave not one value")
	}
}
