package witness

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/stream"
)

// A spoke refuses what is older than what it has, but of what went with its workloads it has
// nothing. So a principal that was frozen while another one had the agent's link, and whose
// cache still shows an Application that is gone, would have it made again, and Argo CD deploy
// it again. A process that took a link over therefore reads an Application of which the
// spoke holds nothing by quorum before it is sent, once: the spoke has told what it holds on
// this connection by then, so nothing that another principal told it is under way. What this
// process sends itself follows from its own cache, which does not go back.

const (
	// ProofTime bounds one round.
	ProofTime = 20 * time.Second

	// proofBatch is how many Applications are read for one round, and proofReads how many
	// of these at once.
	proofBatch = 256
	proofReads = 16
	// proofPause is the pause after the API server could not be asked.
	proofPause = time.Second
)

// Proofs are what is known of Applications that the spoke does not hold. There is at most
// one entry for each Application of the agent. They are of one goroutine.
type Proofs struct {
	other   int64                         // who had the link last, by the epoch of its claim; zero for no one
	known   map[stream.ResourceKey]string // UIDs of objects that were there
	wanted  map[stream.ResourceKey]string // UIDs of those to be asked about
	asking  bool                          // a round is under way
	retryAt time.Time                     // when the next may begin; zero for at once
}

// NewProofs knows nothing.
func NewProofs() Proofs {
	return Proofs{known: map[stream.ResourceKey]string{}, wanted: map[stream.ResourceKey]string{}}
}

// TakeOver notes from whom the link was taken over last. What was known is of before.
func (p *Proofs) TakeOver(other int64) {
	if other != p.other {
		p.other = other
		clear(p.known)
	}
}

// Forget forgets an object.
func (p *Proofs) Forget(key stream.ResourceKey) {
	delete(p.known, key)
	delete(p.wanted, key)
}

// Wants reports whether an object with that UID is not known to be there still. It is
// asked about then.
func (p *Proofs) Wants(key stream.ResourceKey, uid string) bool {
	if p.other == 0 || p.known[key] == uid {
		return false
	}
	p.wanted[key] = uid
	return true
}

// Round are objects that are asked about at once.
type Round struct {
	Keys  []stream.ResourceKey
	other int64
}

// Begin begins a round; empty while one is under way, or for nothing to ask. next is when
// it may begin; zero for not later than now.
func (p *Proofs) Begin(now time.Time) (r Round, next time.Time) {
	switch {
	case p.asking || len(p.wanted) == 0:
		return Round{}, time.Time{}
	case now.Before(p.retryAt):
		return Round{}, p.retryAt
	}
	keys := slices.SortedFunc(maps.Keys(p.wanted), stream.ResourceKey.Compare)
	p.asking = true
	return Round{Keys: keys[:min(len(keys), proofBatch)], other: p.other}, time.Time{}
}

// Reading is what the API server said of an object; of one that is gone the object is empty.
type Reading struct {
	Object backends.Object
	Err    error
}

// Read reads the objects of a round by quorum.
func (r Round) Read(ctx context.Context, store backends.Store) []Reading {
	found := make([]Reading, len(r.Keys))
	var g errgroup.Group
	g.SetLimit(proofReads)
	for i, key := range r.Keys {
		g.Go(func() error {
			o, err := store.Read(ctx, key)
			if errors.Is(err, stream.ErrNotFound) {
				o, err = backends.Object{}, nil
			}
			found[i] = Reading{Object: o, Err: err}
			return nil
		})
	}
	_ = g.Wait() // each has its own error
	return found
}

// End notes that a round has ended. It reports whether that is of use: what another
// principal did since it does not show.
func (p *Proofs) End(r Round) bool {
	p.asking = false
	return r.other == p.other
}

// Pause has the next round wait, since the API server could not be asked.
func (p *Proofs) Pause(now time.Time) { p.retryAt = now.Add(proofPause) }

// Proof is what is known of an object in the end.
type Proof struct {
	// Result is "there" or "gone"; "failed" when it is to be asked about again, for Err; and
	// empty when no one asks any more.
	Result string
	// Behind is what the cache does not show yet: that the object is gone, or that it is
	// newer.
	Behind bool
	Err    error
}

// Decide is the proof of one object of a round by what was read, while the cache has it as
// current, and there says that it has it.
func (p *Proofs) Decide(key stream.ResourceKey, read Reading, current backends.Object, there bool) Proof {
	asked, wanted := p.wanted[key]
	newer := object.Revision(read.Object.ResourceVersion) > object.Revision(current.ResourceVersion)
	if read.Err == nil && read.Object.UID != "" && read.Object.UID != asked && !newer {
		read.Err = errBehindCache
	}
	switch {
	case !wanted || !there || current.UID != asked:
		delete(p.wanted, key) // it is asked about again if it is another
		return Proof{}
	case read.Err != nil:
		return Proof{Result: "failed", Err: read.Err}
	case read.Object.UID == "":
		delete(p.wanted, key)
		return Proof{Result: "gone", Behind: true}
	}
	p.known[key] = read.Object.UID
	delete(p.wanted, key)
	return Proof{Result: "there", Behind: newer}
}

// errBehindCache is an object that is older than another one of that name in the cache, which
// follows a restore of the API server in a while.
var errBehindCache = errors.New("the API server has an older object of that name than was seen of it")
