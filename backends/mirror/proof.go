package mirror

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// A spoke refuses what is older than what it has, but of what went with its workloads it has
// nothing. So a principal that was frozen while another one had the agent's link, and whose
// cache still shows an Application that is gone, would have it made anew, and Argo CD deploy
// it again. A process that took a link over therefore reads an Application of which the
// spoke holds nothing by quorum before it is sent, once: the spoke has told what it holds on
// this connection by then, so nothing that another principal told it is under way. What this
// process sends itself follows from its own cache, which does not go back.

const (
	// proofBatch is how many Applications are read for one round, proofReads how many of
	// these at once, and proofTime bounds the round.
	proofBatch = 256
	proofReads = 16
	proofTime  = 20 * time.Second
	// proofPause is the pause after the API server could not be asked.
	proofPause = time.Second
)

// proofs are what is known of Applications that the spoke does not hold. There is at most
// one entry for each Application of the agent.
type proofs struct {
	other  int64                         // Judgement.Other
	known  map[stream.ResourceKey]string // UIDs of objects that were there
	wanted map[stream.ResourceKey]string // UIDs of those to be asked about
	asking bool                          // a round is under way
	again  time.Time                     // when the next may begin; zero for at once
}

func newProofs() proofs {
	return proofs{known: map[stream.ResourceKey]string{}, wanted: map[stream.ResourceKey]string{}}
}

// takeOver notes from whom the link was taken over last. What was known is of before.
func (p *proofs) takeOver(other int64) {
	if other != p.other {
		p.other = other
		clear(p.known)
	}
}

func (p *proofs) forget(key stream.ResourceKey) {
	delete(p.known, key)
	delete(p.wanted, key)
}

// unproven reports whether an Application that the spoke would make is not known to be there
// still. It is asked about then.
func (l *loop) unproven(entry stream.EntryKey, content link.Content) bool {
	if !l.counts(entry) || l.m.cfg.History == nil || content.Leaving || l.link.Believed(entry).SourceUID == content.Version.SourceUID {
		return false
	}
	if !l.past.judged {
		return true // the judgement says whether that is needed
	}
	key, _ := l.rules.Local(entry)
	current, found := l.newest(key)
	if l.proofs.other == 0 || !found || l.proofs.known[key] == current.UID {
		return false
	}
	l.proofs.wanted[key] = current.UID
	l.prove()
	return true
}

// prove begins a round unless one is under way.
func (l *loop) prove() {
	s := l.session
	if s == nil || l.proofs.asking || len(l.proofs.wanted) == 0 {
		return
	}
	if time.Now().Before(l.proofs.again) {
		l.lookAt(l.proofs.again)
		return
	}
	keys := slices.SortedFunc(maps.Keys(l.proofs.wanted), byKey)
	keys = keys[:min(len(keys), proofBatch)]
	l.proofs.asking = true
	other := l.proofs.other
	l.spawn = append(l.spawn, func(ctx context.Context) {
		reading, cancel := context.WithTimeout(ctx, proofTime)
		defer cancel()
		found := l.m.readAll(reading, keys)
		// When the loop has ended nobody is left to tell.
		_ = l.m.do(ctx, func(l *loop) { l.proven(other, keys, found) })
	})
}

// reading is what the API server said of an object; of one that is gone the object is empty.
type reading struct {
	object backends.Object
	err    error
}

// readAll reads objects by quorum.
func (m *Mirror) readAll(ctx context.Context, keys []stream.ResourceKey) []reading {
	found := make([]reading, len(keys))
	var g errgroup.Group
	g.SetLimit(proofReads)
	for i, key := range keys {
		g.Go(func() error {
			o, err := m.cfg.Store.Read(ctx, key)
			if errors.Is(err, stream.ErrNotFound) {
				o, err = backends.Object{}, nil
			}
			found[i] = reading{object: o, err: err}
			return nil
		})
	}
	_ = g.Wait() // each has its own error
	return found
}

// proven takes what a round found that was asked while other had the link last. What the
// cache does not show yet counts from now on.
func (l *loop) proven(other int64, keys []stream.ResourceKey, found []reading) {
	l.proofs.asking = false
	if other != l.proofs.other { // what another one did since it does not show
		l.prove()
		return
	}
	var failed error
	for i, key := range keys {
		asked, wanted := l.proofs.wanted[key]
		current, there := l.newest(key)
		read := found[i]
		newer := revisionOf(read.object.ResourceVersion) > revisionOf(current.ResourceVersion)
		if read.err == nil && read.object.UID != "" && read.object.UID != asked && !newer {
			read.err = errBehindCache
		}
		switch {
		case !wanted || !there || current.UID != asked:
			delete(l.proofs.wanted, key) // load asks again if it is another
		case read.err != nil:
			l.m.cfg.Metrics.proven("failed")
			failed = read.err
			continue
		case read.object.UID == "":
			l.m.cfg.Metrics.proven("gone")
			l.foresee(key, ahead{uid: asked})
		default:
			if newer {
				l.foresee(key, ahead{object: &read.object, uid: read.object.UID})
			}
			l.m.cfg.Metrics.proven("there")
			l.proofs.known[key] = read.object.UID
			delete(l.proofs.wanted, key)
		}
		l.observe(key)
		l.step(link.Proven{Key: l.rules.entry(stream.Applications, key)})
	}
	if failed != nil {
		l.m.log.Warn().Err(failed).Msg("cannot read Applications that are to be made on the spoke, trying again")
		l.proofs.again = time.Now().Add(proofPause)
	}
	l.prove()
}

// errBehindCache is an object that is older than another one of that name in the cache, which
// follows a restore of the API server in a while.
var errBehindCache = errors.New("the API server has an older object of that name than was seen of it")

// foresee notes what the API server has while the cache does not show it.
func (l *loop) foresee(key stream.ResourceKey, a ahead) {
	delete(l.proofs.wanted, key)
	a.since, a.schemas = time.Now(), l.rules.Schemas
	l.ahead[key] = a
	l.lookAt(a.since.Add(settleTime))
}
