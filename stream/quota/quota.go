// Package quota bounds the memory that is under way in a process on account of its
// peers: of each by itself, and of all together. Who needs more than there is waits, and
// with it the peer, which gRPC's flow control slows down; what waits holds nothing that
// others wait for. It owns the numbers; what takes how much is its callers' affair.
//
//	release, err := q.Take(ctx, agent, quota.Decoding, bytes)
//	if err != nil {
//		return err // ctx is done
//	}
//	defer release()
package quota

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/argomesh/argomesh/identity"
)

// Use is what memory is taken for. Each has its own room: who has finished one and waits
// for the next keeps nobody from going on.
type Use uint8

const (
	// Arriving are bytes of a message as they come, which may take as long as the peer
	// likes, within its silence.
	Arriving Use = iota
	// Decoding is a message that is unpacked and decoded. It waits for nobody.
	Decoding
	// Open is content that came and is not yet answered.
	Open
	// Working is content that is decoded, compared and written, and trees that are.
	Working
	// Passing are values of a spoke's Redis that are held as a whole until who asked has
	// them.
	Passing
	uses
)

// String is the value of label "use" of the metrics.
func (u Use) String() string {
	switch u {
	case Arriving:
		return "arriving"
	case Decoding:
		return "decoding"
	case Open:
		return "open"
	case Working:
		return "working"
	case Passing:
		return "passing"
	}
	return ""
}

// The room of one peer, in bytes: 64 MiB in all.
const (
	PeerArriving = 4 << 20
	PeerDecoding = 12 << 20
	PeerOpen     = 8 << 20
	PeerWorking  = 32 << 20
	PeerPassing  = 8 << 20
)

// The room of all peers, in bytes: 256 MiB in all.
const (
	AllArriving = 24 << 20
	AllDecoding = 36 << 20
	AllOpen     = 80 << 20
	AllWorking  = 84 << 20
	AllPassing  = 32 << 20
)

// ofPeer returns the room of one peer.
func (u Use) ofPeer() int64 {
	return [uses]int64{PeerArriving, PeerDecoding, PeerOpen, PeerWorking, PeerPassing}[u]
}

// ofAll returns the room of all peers.
func (u Use) ofAll() int64 {
	return [uses]int64{AllArriving, AllDecoding, AllOpen, AllWorking, AllPassing}[u]
}

// Quota is the room of one process. It may be used by several goroutines at once.
type Quota struct {
	all     [uses]*semaphore.Weighted
	bytes   *prometheus.GaugeVec
	waiting *prometheus.GaugeVec

	mu    sync.Mutex // guards peers and what is in them
	peers map[place]*room
}

// place is the room of a peer for one use.
type place struct {
	peer identity.AgentName
	use  Use
}

// room is there while somebody takes of it, or waits to.
type room struct {
	*semaphore.Weighted
	users int
}

// New returns a Quota. Its metrics are registered with r, unless that is nil.
func New(r prometheus.Registerer) (*Quota, error) {
	q := &Quota{
		bytes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_memory_bytes", Help: "Memory under way on account of peers, by what it is used for.",
		}, []string{"use"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "argomesh_memory_waiting", Help: "Messages and objects that wait for memory, by what they need it for.",
		}, []string{"use"}),
		peers: map[place]*room{},
	}
	for u := range uses {
		q.all[u] = semaphore.NewWeighted(u.ofAll())
		q.bytes.WithLabelValues(u.String())
		q.waiting.WithLabelValues(u.String())
	}
	if r == nil {
		return q, nil
	}
	if err := errors.Join(r.Register(q.bytes), r.Register(q.waiting)); err != nil {
		return nil, fmt.Errorf("quota: %w", err)
	}
	return q, nil
}

// Take waits until the peer, and all together, have room for n bytes, and takes them
// until release is called, once. The zero peer is one as any other. What is more than a
// peer may ever have takes all of it. The error is that of ctx.
func (q *Quota) Take(ctx context.Context, peer identity.AgentName, use Use, n int64) (release func(), err error) {
	n = min(n, use.ofPeer())
	of := place{peer, use}
	own := q.enter(of)
	waiting := q.waiting.WithLabelValues(use.String())
	waiting.Inc()
	defer waiting.Dec()
	// First its own: who waits for what is its own is in nobody's way.
	if err := own.Acquire(ctx, n); err != nil {
		q.leave(of)
		return nil, err
	}
	if err := q.all[use].Acquire(ctx, n); err != nil {
		own.Release(n)
		q.leave(of)
		return nil, err
	}
	return q.taken(of, own, n), nil
}

// Try takes n bytes if the peer, and all together, have room for them now.
func (q *Quota) Try(peer identity.AgentName, use Use, n int64) (release func(), ok bool) {
	of := place{peer, use}
	own := q.enter(of)
	if !own.TryAcquire(n) {
		q.leave(of)
		return nil, false
	}
	if !q.all[use].TryAcquire(n) {
		own.Release(n)
		q.leave(of)
		return nil, false
	}
	return q.taken(of, own, n), true
}

// taken counts what was taken, and returns what gives it back.
func (q *Quota) taken(of place, own *room, n int64) (release func()) {
	held := q.bytes.WithLabelValues(of.use.String())
	held.Add(float64(n))
	return func() {
		held.Sub(float64(n))
		q.all[of.use].Release(n)
		own.Release(n)
		q.leave(of)
	}
}

func (q *Quota) enter(of place) *room {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.peers[of]
	if r == nil {
		r = &room{Weighted: semaphore.NewWeighted(of.use.ofPeer())}
		q.peers[of] = r
	}
	r.users++
	return r
}

func (q *Quota) leave(of place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r := q.peers[of]; r.users == 1 {
		delete(q.peers, of)
	} else {
		r.users--
	}
}
