// Package quota bounds the memory that is under way in a process on account of its
// peers, of each by itself and of all together, and the processors that compute for them.
// Who needs more than there is waits, and with it the peer, which gRPC's flow control slows
// down; what waits for memory holds none that others wait for. Peers take turns: the one goes
// next that holds least, and of those the one whose last turn is longest ago. A few peers
// that hold all they may leave room for those that hold little (limitFor). It owns the
// numbers; what takes how much is its callers' affair.
//
//	release, err := q.Acquire(ctx, agent, quota.Decoding, bytes)
//	if err != nil {
//		return err // ctx is done
//	}
//	defer release()
//	defer q.Compute(agent).End()
package quota

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argomesh/argomesh/identity"
)

// Use is what memory is taken for. Each has its own room: who has finished one and waits
// for the next keeps no one from going on.
type Use uint8

const (
	// Arriving are bytes of a message as they come, which may take as long as the peer
	// likes, within its silence.
	Arriving Use = iota
	// Decoding is a message that is unpacked and decoded. It waits for no one.
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

// Parts of the room, but for Decoding, which waits for no one and takes a peer's whole room
// each time. Two thirds of the room of all are for everyone. Of the rest one half is for
// peers that hold at most a quarter of what a peer may, with what they ask for, and the last
// sixth for those that hold at most a sixteenth: so that there be room for 16 such peers of
// Arriving, and 7 of Working, whatever others hold.
const (
	quarter, sixteenth = 4, 16
)

// limitFor returns the room of all peers together as far as a peer may use it that will
// hold that many bytes.
func (u Use) limitFor(n int64) int64 {
	all := u.ofAll()
	switch {
	case u == Decoding || n <= u.ofPeer()/sixteenth:
		return all
	case n <= u.ofPeer()/quarter:
		return all / 6 * 5
	}
	return all / 3 * 2
}

// Quota is the room of one process. It may be used by several goroutines at once.
type Quota struct {
	rooms      [uses]*room
	bytes      *prometheus.GaugeVec
	waiting    *prometheus.GaugeVec
	processors *processors
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
		processors: newProcessors(runtime.GOMAXPROCS(0)),
	}
	for u := range uses {
		q.rooms[u] = newRoom(u.ofPeer(), u.limitFor)
		q.bytes.WithLabelValues(u.String())
		q.waiting.WithLabelValues(u.String())
	}
	if r == nil {
		return q, nil
	}
	if err := errors.Join(r.Register(q.bytes), r.Register(q.waiting), r.Register(q.processors.working),
		r.Register(q.processors.waiting)); err != nil {
		return nil, fmt.Errorf("quota: %w", err)
	}
	return q, nil
}

// Acquire waits until the peer, and all together, have room for n bytes, and takes them
// until release is called, once. The zero peer is one as any other. What is more than a
// peer may ever have takes all of it. The error is that of ctx.
func (q *Quota) Acquire(ctx context.Context, of identity.AgentName, use Use, n int64) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n = min(n, use.ofPeer())
	r := q.rooms[use]
	w := r.join(of, n)
	if !w.isGranted() {
		waiting := q.waiting.WithLabelValues(use.String())
		waiting.Inc()
		defer waiting.Dec()
		select {
		case <-w.granted:
		case <-ctx.Done():
			if r.cancel(of, w) {
				return nil, ctx.Err()
			}
			// It was granted meanwhile.
		}
	}
	return q.counted(of, use, n), nil
}

// TryAcquire takes n bytes if the peer, and all together, have room for them now, and no one
// waits that comes first.
func (q *Quota) TryAcquire(of identity.AgentName, use Use, n int64) (release func(), ok bool) {
	if n > use.ofPeer() {
		return nil, false
	}
	r := q.rooms[use]
	w := r.join(of, n)
	if !w.isGranted() && r.cancel(of, w) {
		return nil, false
	}
	return q.counted(of, use, n), true
}

// counted counts what was acquired, and returns what gives it back.
func (q *Quota) counted(of identity.AgentName, use Use, n int64) (release func()) {
	gauge := q.bytes.WithLabelValues(use.String())
	gauge.Add(float64(n))
	return func() {
		gauge.Sub(float64(n))
		q.rooms[use].release(of, n)
	}
}
