package quota

import (
	"slices"
	"sync"

	"github.com/argomesh/argomesh/identity"
)

// room is that of all peers for one use.
type room struct {
	ofPeer int64
	// limitFor returns the room of all peers together as far as a peer may use it that will
	// hold so much.
	limitFor func(n int64) int64

	mu     sync.Mutex // guards what follows
	used   int64
	grants uint64 // how many there were
	// peers are those that hold something, or wait, and those that wait in the order in
	// which they began to.
	peers map[identity.AgentName]*peer
	order []identity.AgentName
}

// peer is how one stands. Its line is first in, first out: who waits for what is its own is
// in no one else's way.
type peer struct {
	of      identity.AgentName
	used    int64
	granted int    // that are not released, those of nothing among them
	last    uint64 // the number of its last grant, or of the last one before it came
	line    []*waiter
}

// waiter is one that wants bytes, or a slot.
type waiter struct {
	n       int64
	granted chan struct{} // closed when it has them
}

func newRoom(ofPeer int64, limitFor func(n int64) int64) *room {
	return &room{ofPeer: ofPeer, limitFor: limitFor, peers: map[identity.AgentName]*peer{}}
}

func (w *waiter) isGranted() bool {
	select {
	case <-w.granted:
		return true
	default:
		return false
	}
}

// join puts one into its peer's line, and grants what there is room for.
func (r *room) join(of identity.AgentName, n int64) *waiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[of]
	if p == nil {
		p = &peer{of: of, last: r.grants} // after those that wait
		r.peers[of] = p
	}
	if len(p.line) == 0 {
		r.order = append(r.order, of)
	}
	w := &waiter{n, make(chan struct{})}
	p.line = append(p.line, w)
	r.grant()
	return w
}

// cancel takes one out of its line; false when it was granted.
func (r *room) cancel(of identity.AgentName, w *waiter) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.isGranted() {
		return false
	}
	p := r.peers[of]
	p.line = slices.DeleteFunc(p.line, func(other *waiter) bool { return other == w })
	r.tidy(of, p)
	r.grant()
	return true
}

// release gives bytes back.
func (r *room) release(of identity.AgentName, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[of]
	r.used -= n
	p.used -= n
	p.granted--
	r.tidy(of, p)
	r.grant()
}

// tidy forgets what is not needed of a peer.
func (r *room) tidy(of identity.AgentName, p *peer) {
	if len(p.line) > 0 {
		return
	}
	r.order = slices.DeleteFunc(r.order, func(other identity.AgentName) bool { return other == of })
	if p.granted == 0 {
		delete(r.peers, of)
	}
}

// grant grants what there is room for.
func (r *room) grant() {
	for {
		of, found := r.next()
		if !found {
			return
		}
		p := r.peers[of]
		w := p.line[0]
		p.line = p.line[1:]
		r.used += w.n
		p.used += w.n
		p.granted++
		r.grants++
		p.last = r.grants
		r.tidy(of, p)
		close(w.granted)
	}
}

// next is the peer that is granted next. Who has no room yet keeps others of its part of the
// room, and those that would use more of it, from going before; those that hold less go. It
// goes through those that wait once, and once more for each part of the room that is full.
func (r *room) next() (of identity.AgentName, found bool) {
	blocked := int64(0) // the parts up to here are kept for who waits for them
	for {
		first := r.first(blocked)
		if first == nil {
			return identity.AgentName{}, false
		}
		if limit := r.limitOf(first); r.used+first.line[0].n > limit {
			blocked = limit
			continue
		}
		return first.of, true
	}
}

// first is the peer that comes before all others' that would use more than the parts up
// to blocked; nil for none.
func (r *room) first(blocked int64) *peer {
	var first *peer
	for _, of := range r.order {
		p := r.peers[of]
		if limit := r.limitOf(p); limit == 0 || limit <= blocked {
			continue
		}
		if first == nil || p.used < first.used || p.used == first.used && p.last < first.last {
			first = p
		}
	}
	return first
}

// limitOf is how much of the room a peer may use with what it waits for; zero when it waits for
// what is its own.
func (r *room) limitOf(p *peer) int64 {
	use := p.used + p.line[0].n
	if use > r.ofPeer {
		return 0
	}
	return r.limitFor(use)
}
