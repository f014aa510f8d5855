package mirror

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/view"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// witness finds out, by quorum reads, what the API server has: whether a deletion that was seen was
// one, and whether an Application that is to be made is there still.
type witness struct {
	*core
	// seen are deletions that are being confirmed, confirming says that some are asked
	// about, and confirmAgain is when to ask again; zero for not.
	seen         map[stream.ResourceKey]seenDeletion
	confirming   bool
	confirmAgain time.Time
	// proofs say which Applications are known to be there still.
	proofs proofs
}

const (
	// maxSeen bounds the deletions of one link that were seen and are not yet over: those
	// that are being confirmed, and those of which the spoke is still to hear, as while it
	// is away. Each takes some 200 bytes. Any more are absences.
	maxSeen = 10_000
	// askBatch is how many deletions are confirmed at once, and askTime bounds
	// that.
	askBatch = 256
	askTime  = 20 * time.Second
	// askPause is the pause after an API server could not be asked, and askLimit
	// how long it is tried: what cannot be confirmed by then is an absence. With
	// askTime that is less than the time after which stream/link begins a new history,
	// so that nothing of a history that broke is confirmed in the next one.
	askPause = time.Second
	askLimit = 10 * time.Second
)

// seenDeletion is the deletion of a hub Application, while it is being confirmed. Until
// that is known the link is not told that the Application is gone.
type seenDeletion struct {
	backends.Deletion // less Last.Raw
	since             time.Time
	// refuted is set once the API server said that this is no deletion. It is asked once
	// more within askLimit, not before the time again: where the Application has been made
	// anew the cache shows that by then, and it is no absence.
	refuted bool
	again   time.Time
}

// deletionSet collects deletions until they are taken.
type deletionSet struct {
	mu        sync.Mutex // guards what follows
	deletions []backends.Deletion
}

func (s *deletionSet) add(d backends.Deletion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deletions = append(s.deletions, d)
}

// take empties the set, oldest first.
func (s *deletionSet) take() []backends.Deletion {
	s.mu.Lock()
	defer s.mu.Unlock()
	deletions := s.deletions
	s.deletions = nil
	return deletions
}

// see takes note of a deletion of which the API server told, if it was the agent's and
// the spoke may have it.
func (w *witness) see(d backends.Deletion) {
	key := d.Last.Key
	if key.Kind != stream.Application || len(w.rules.Keys(key)) == 0 || w.past.broken ||
		!w.link.MayHold(w.rules.Entry(stream.Applications, key)) {
		return
	}
	if last, err := object.Parse(d.Last); err != nil || !w.rules.WasSent(last) {
		return
	}
	if len(w.seen)+w.link.SeenDeletes() >= maxSeen {
		w.env.cfg.Metrics.deleted("dropped")
		return
	}
	d.Last.Raw = nil
	w.seen[key] = seenDeletion{Deletion: d, since: time.Now()}
	w.confirm()
}

// confirm has deletions confirmed beside the loop, the oldest first, unless that is
// under way.
func (w *witness) confirm() {
	if w.confirming || len(w.seen) == 0 {
		return
	}
	batch := make([]seenDeletion, 0, len(w.seen))
	now := time.Now()
	for _, d := range w.seen {
		if d.again.After(now) {
			w.confirmAt(d.again)
			continue
		}
		batch = append(batch, d)
	}
	if len(batch) == 0 {
		return
	}
	slices.SortFunc(batch, func(a, b seenDeletion) int { return cmp.Compare(a.Revision, b.Revision) })
	batch = batch[:min(len(batch), askBatch)]
	deletions := make([]backends.Deletion, len(batch))
	for i, d := range batch {
		deletions[i] = d.Deletion
	}
	w.confirming = true
	w.spawn = append(w.spawn, func(ctx context.Context) {
		asking, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		confirmed, err := w.env.cfg.Confirm(asking, deletions)
		// When the loop has ended nobody is left to tell.
		_ = w.env.do(ctx, func() { w.confirmed(batch, confirmed, err) })
	})
}

// confirmed takes the answers about a batch.
func (w *witness) confirmed(batch []seenDeletion, confirmed []bool, err error) {
	w.confirming = false
	if err != nil {
		w.env.log.Warn().Err(err).Msg("cannot confirm deletions that the API server of the hub told of, trying again")
	}
	for i, d := range batch {
		key := d.Last.Key
		now, still := w.seen[key]
		if !still || now.Last.UID != d.Last.UID || now.Revision != d.Revision {
			continue // given up, or another one
		}
		result := "confirmed"
		switch {
		case err != nil && time.Since(d.since) < askLimit:
			continue
		case err != nil:
			result = "unknown"
		case !confirmed[i] && !now.refuted && time.Since(d.since) < askLimit-askPause:
			now.refuted, now.again = true, time.Now().Add(askPause)
			w.seen[key] = now
			continue
		case !confirmed[i]:
			result = "refuted"
		default:
			w.step(link.Seen{Key: w.rules.Entry(stream.Applications, key), UID: d.Last.UID, Revision: d.Revision})
		}
		w.env.cfg.Metrics.deleted(result)
		delete(w.seen, key)
		w.observe(key)
	}
	if err != nil {
		w.confirmAt(time.Now().Add(askPause))
		return
	}
	w.confirm()
}

// confirmAt has deletions confirmed at a time, or before.
func (w *witness) confirmAt(at time.Time) {
	if w.confirmAgain.IsZero() || at.Before(w.confirmAgain) {
		w.confirmAgain = at
	}
	w.lookAt(w.confirmAgain)
}

// confirmLater asks again after the pause.
func (w *witness) confirmLater() {
	switch {
	case w.confirmAgain.IsZero():
	case time.Now().Before(w.confirmAgain):
		w.lookAt(w.confirmAgain)
	default:
		w.confirmAgain = time.Time{}
		w.confirm()
	}
}

// unsee makes absences of the deletions that are being confirmed: the history in which
// they were seen does not continue.
func (w *witness) unsee() {
	for _, key := range slices.SortedFunc(maps.Keys(w.seen), stream.ResourceKey.Compare) {
		delete(w.seen, key)
		w.env.cfg.Metrics.deleted("unknown")
		w.observe(key)
	}
}

// undecided reports whether an object is gone, and it is being found out what that
// means. What was seen of an earlier one of that name is no news any more.
func (w *witness) undecided(key stream.ResourceKey, current *object.Object) bool {
	d, seen := w.seen[key]
	switch {
	case !seen:
	case current == nil:
		return true
	case current.UID() != d.Last.UID:
		delete(w.seen, key)
	}
	return false
}

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
func (w *witness) unproven(entry stream.EntryKey, content link.Content) bool {
	if !w.counts(entry) || w.env.cfg.History == nil || content.Leaving || w.link.Believed(entry).SourceUID == content.Version.SourceUID {
		return false
	}
	if !w.past.judged {
		return true // the judgement says whether that is needed
	}
	key, _ := w.rules.Local(entry)
	current, found := w.view.Newest(key)
	if w.proofs.other == 0 || !found || w.proofs.known[key] == current.UID {
		return false
	}
	w.proofs.wanted[key] = current.UID
	w.prove()
	return true
}

// prove begins a round unless one is under way.
func (w *witness) prove() {
	s := w.session
	if s == nil || w.proofs.asking || len(w.proofs.wanted) == 0 {
		return
	}
	if time.Now().Before(w.proofs.again) {
		w.lookAt(w.proofs.again)
		return
	}
	keys := slices.SortedFunc(maps.Keys(w.proofs.wanted), stream.ResourceKey.Compare)
	keys = keys[:min(len(keys), proofBatch)]
	w.proofs.asking = true
	other := w.proofs.other
	w.spawn = append(w.spawn, func(ctx context.Context) {
		reading, cancel := context.WithTimeout(ctx, proofTime)
		defer cancel()
		found := w.env.cfg.readAll(reading, keys)
		// When the loop has ended nobody is left to tell.
		_ = w.env.do(ctx, func() { w.proven(other, keys, found) })
	})
}

// reading is what the API server said of an object; of one that is gone the object is empty.
type reading struct {
	object backends.Object
	err    error
}

// readAll reads objects by quorum.
func (cfg Config) readAll(ctx context.Context, keys []stream.ResourceKey) []reading {
	found := make([]reading, len(keys))
	var g errgroup.Group
	g.SetLimit(proofReads)
	for i, key := range keys {
		g.Go(func() error {
			o, err := cfg.Store.Read(ctx, key)
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
func (w *witness) proven(other int64, keys []stream.ResourceKey, found []reading) {
	w.proofs.asking = false
	if other != w.proofs.other { // what another one did since it does not show
		w.prove()
		return
	}
	var failed error
	for i, key := range keys {
		asked, wanted := w.proofs.wanted[key]
		current, there := w.view.Newest(key)
		read := found[i]
		newer := object.Revision(read.object.ResourceVersion) > object.Revision(current.ResourceVersion)
		if read.err == nil && read.object.UID != "" && read.object.UID != asked && !newer {
			read.err = errBehindCache
		}
		switch {
		case !wanted || !there || current.UID != asked:
			delete(w.proofs.wanted, key) // load asks again if it is another
		case read.err != nil:
			w.env.cfg.Metrics.proven("failed")
			failed = read.err
			continue
		case read.object.UID == "":
			w.env.cfg.Metrics.proven("gone")
			w.foresee(key, nil, asked)
		default:
			if newer {
				w.foresee(key, &read.object, read.object.UID)
			}
			w.env.cfg.Metrics.proven("there")
			w.proofs.known[key] = read.object.UID
			delete(w.proofs.wanted, key)
		}
		w.observe(key)
		w.step(link.Proven{Key: w.rules.Entry(stream.Applications, key)})
	}
	if failed != nil {
		w.env.log.Warn().Err(failed).Msg("cannot read Applications that are to be made on the spoke, trying again")
		w.proofs.again = time.Now().Add(proofPause)
	}
	w.prove()
}

// errBehindCache is an object that is older than another one of that name in the cache, which
// follows a restore of the API server in a while.
var errBehindCache = errors.New("the API server has an older object of that name than was seen of it")

// foresee notes what the API server has while the cache does not show it; nil for nothing.
func (w *witness) foresee(key stream.ResourceKey, o *backends.Object, uid string) {
	delete(w.proofs.wanted, key)
	now := time.Now()
	w.view.Wrote(key, o, uid, w.rules.Schemas, now)
	w.lookAt(now.Add(view.SettleTime))
}
