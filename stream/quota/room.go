package quota

import (
	"slices"
	"sync"

	"github.com/argomesh/argomesh/identity"
)

// room is that of all peers for one use.
type room struct {
	ofPeer int64
	// ofThose returns the room of all peers together as far as a peer may use it that will
	// hold so much.
	ofThose func(held int64) int64

	mu    sync.Mutex // guards what follows
	held  int64
	turns uint64 // that were given
	// peers are those that hold something, or wait, and those that wait in the order in
	// which they began to.
	peers map[identity.AgentName]*peer
	order []identity.AgentName
}

// peer is how one stands. Its line is first in, first out: who waits for what is its own is
// in no one else's way.
type peer struct {
	of    identity.AgentName
	held  int64
	takes int    // that are under way, those of nothing among them
	last  uint64 // its turn, or the last one that was given before it came
	line  []*waiter
}

// waiter is one that wants bytes, or a turn.
type waiter struct {
	n    int64
	turn chan struct{} // closed when it has them
}

func newRoom(ofPeer int64, ofThose func(held int64) int64) *room {
	return &room{ofPeer: ofPeer, ofThose: ofThose, peers: map[identity.AgentName]*peer{}}
}

func (w *waiter) granted() bool {
	select {
	case <-w.turn:
		return true
	default:
		return false
	}
}

// join puts one into its peer's line, and gives the turns that there are.
func (r *room) join(of identity.AgentName, n int64) *waiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[of]
	if p == nil {
		p = &peer{of: of, last: r.turns} // after those that wait
		r.peers[of] = p
	}
	if len(p.line) == 0 {
		r.order = append(r.order, of)
	}
	w := &waiter{n, make(chan struct{})}
	p.line = append(p.line, w)
	r.give()
	return w
}

// giveUp takes one out of its line; false when its turn has come.
func (r *room) giveUp(of identity.AgentName, w *waiter) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.granted() {
		return false
	}
	p := r.peers[of]
	p.line = slices.DeleteFunc(p.line, func(other *waiter) bool { return other == w })
	r.tidy(of, p)
	r.give()
	return true
}

// release gives bytes back.
func (r *room) release(of identity.AgentName, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peers[of]
	r.held -= n
	p.held -= n
	p.takes--
	r.tidy(of, p)
	r.give()
}

// tidy forgets what is not needed of a peer.
func (r *room) tidy(of identity.AgentName, p *peer) {
	if len(p.line) > 0 {
		return
	}
	r.order = slices.DeleteFunc(r.order, func(other identity.AgentName) bool { return other == of })
	if p.takes == 0 {
		delete(r.peers, of)
	}
}

// give gives the turns that there is room for.
func (r *room) give() {
	for {
		of, found := r.next()
		if !found {
			return
		}
		p := r.peers[of]
		w := p.line[0]
		p.line = p.line[1:]
		r.held += w.n
		p.held += w.n
		p.takes++
		r.turns++
		p.last = r.turns
		r.tidy(of, p)
		close(w.turn)
	}
}

// next is whose turn it is. Who has no room yet keeps others of its part of the room, and
// those that would use more of it, from going before; those that hold less go. It looks at
// those that wait once, and once more for each part of the room that is full.
func (r *room) next() (of identity.AgentName, found bool) {
	blocked := int64(0) // the parts up to here are kept for who waits for them
	for {
		first := r.first(blocked)
		if first == nil {
			return identity.AgentName{}, false
		}
		if part := r.part(first); r.held+first.line[0].n > part {
			blocked = part
			continue
		}
		return first.of, true
	}
}

// first is the peer whose turn is before all others' that would use more than the parts up
// to blocked; nil for none.
func (r *room) first(blocked int64) *peer {
	var first *peer
	for _, of := range r.order {
		p := r.peers[of]
		if part := r.part(p); part == 0 || part <= blocked {
			continue
		}
		if first == nil || p.held < first.held || p.held == first.held && p.last < first.last {
			first = p
		}
	}
	return first
}

// part is how much of the room a peer may use with what it waits for; zero when it waits for
// what is its own.
func (r *room) part(p *peer) int64 {
	holds := p.held + p.line[0].n
	if holds > r.ofPeer {
		return 0
	}
	return r.ofThose(holds)
}
