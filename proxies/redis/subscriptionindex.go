package redis

import (
	"context"
	"sync"

	"github.com/argomesh/argomesh/internal/notify"
	"github.com/argomesh/argomesh/proxies/redis/appkey"
)

// subscriptionIndex knows which callers are subscribed to channels of which Applications, so
// that their subscriptions follow when an Application gets another owner. What is to be
// checked is never more than what callers are subscribed to, and however often
// something changes, it is checked once.
type subscriptionIndex struct {
	pending notify.Signal // has a value when something has changed

	mu      sync.Mutex                            // guards what follows
	of      map[appkey.Instance]map[*listener]int // with the number of its channels
	changes map[appkey.Instance]struct{}
	all     bool // anything may have changed
}

func newSubscriptionIndex() *subscriptionIndex {
	return &subscriptionIndex{pending: notify.NewSignal(), of: map[appkey.Instance]map[*listener]int{},
		changes: map[appkey.Instance]struct{}{}}
}

// add notes a channel of a listener's.
func (f *subscriptionIndex) add(i appkey.Instance, l *listener) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of[i] == nil {
		f.of[i] = map[*listener]int{}
	}
	f.of[i][l]++
}

// remove takes back an add.
func (f *subscriptionIndex) remove(i appkey.Instance, l *listener) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of[i][l]--; f.of[i][l] > 0 {
		return
	}
	delete(f.of[i], l)
	if len(f.of[i]) == 0 {
		delete(f.of, i)
		delete(f.changes, i)
	}
}

// changed takes note that the owner of an Application may have changed; with the zero
// Instance that of any. It is what OwnerResolver.Watch calls.
func (f *subscriptionIndex) changed(i appkey.Instance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case i == appkey.Instance{}:
		f.all = true
	case f.of[i] == nil:
		return
	default:
		f.changes[i] = struct{}{}
	}
	f.pending.Notify()
}

// run hands changes to the listeners that they may concern, until ctx is done.
func (f *subscriptionIndex) run(ctx context.Context) {
	for {
		select {
		case <-f.pending:
		case <-ctx.Done():
			return
		}
		for l, instances := range f.due() {
			for _, i := range instances {
				l.ownerChanged(i)
			}
		}
	}
}

// due returns the changes that each listener is to check.
func (f *subscriptionIndex) due() map[*listener][]appkey.Instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	due := map[*listener][]appkey.Instance{}
	if f.all {
		for _, listeners := range f.of {
			for l := range listeners {
				due[l] = []appkey.Instance{{}}
			}
		}
	} else {
		for i := range f.changes {
			for l := range f.of[i] {
				due[l] = append(due[l], i)
			}
		}
	}
	f.all = false
	clear(f.changes)
	return due
}
