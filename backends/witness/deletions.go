// Package witness says what is asked of the API server, by quorum reads, before a link
// believes its cache: whether a deletion that was seen was one, and whether an Application
// that is to be made is there still. It reads nothing and has no clock: who does tells it.
package witness

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
)

const (
	// MaxDeletions bounds the deletions of one link that were seen and are not yet over:
	// those that are being confirmed, and those of which the spoke is still to hear, as
	// while it is away. Each takes some 200 bytes. Any more are absences.
	MaxDeletions = 10_000
	// AskTime bounds the confirmation of one batch.
	AskTime = 20 * time.Second
	// AskPause is the pause after an API server could not be asked.
	AskPause = time.Second

	// askBatch is how many deletions are confirmed at once.
	askBatch = 256
	// askLimit is how long it is tried: what cannot be confirmed by then is an absence.
	// With AskTime that is less than the time after which stream/link begins a new
	// history, so that nothing of a history that broke is confirmed in the next one.
	askLimit = 10 * time.Second
)

// Deletion is the deletion of a hub Application, while it is being confirmed. Until
// that is known the link is not told that the Application is gone.
type Deletion struct {
	backends.Deletion // less Last.Raw
	since             time.Time
	// refuted is set once the API server said that this is no deletion. It is asked once
	// more within askLimit, not before the time again: where the Application has been made
	// again the cache shows that by then, and it is no absence.
	refuted bool
	retryAt time.Time
}

// Deletions are those that are being confirmed. They are of one goroutine.
type Deletions struct {
	seen map[stream.ResourceKey]Deletion
	// asking says that some are asked about, and retryAt is when to ask once more; zero for
	// not.
	asking  bool
	retryAt time.Time
}

// NewDeletions returns none.
func NewDeletions() Deletions { return Deletions{seen: map[stream.ResourceKey]Deletion{}} }

// Len is how many are being confirmed.
func (d *Deletions) Len() int { return len(d.seen) }

// See notes a deletion that a watch told of.
func (d *Deletions) See(one backends.Deletion, now time.Time) {
	one.Last.Raw = nil
	d.seen[one.Last.Key] = Deletion{Deletion: one, since: now}
}

// Batch is what is to be asked about now, the oldest first; empty for nothing, or while
// something is asked. next is when something is to be asked later; zero for not.
func (d *Deletions) Batch(now time.Time) (batch []Deletion, next time.Time) {
	if d.asking || len(d.seen) == 0 {
		return nil, time.Time{}
	}
	for _, one := range d.seen {
		if one.retryAt.After(now) {
			next = d.Later(one.retryAt)
			continue
		}
		batch = append(batch, one)
	}
	slices.SortFunc(batch, func(a, b Deletion) int { return cmp.Compare(a.Revision, b.Revision) })
	batch = batch[:min(len(batch), askBatch)]
	d.asking = len(batch) > 0
	return batch, next
}

// Verdict is what is known of a deletion in the end.
type Verdict string

// These are all verdicts. All but the first make an absence of a deletion.
const (
	Confirmed Verdict = "confirmed"
	Refuted   Verdict = "refuted"
	Unknown   Verdict = "unknown"  // no one could be asked
	None      Verdict = "none yet" // it is asked again
)

// Answered notes that a batch is no longer asked about.
func (d *Deletions) Answered() { d.asking = false }

// Decide is the verdict about one of a batch by what the API server said, or by the error
// for which it said nothing. It forgets the deletion, unless it is asked again. known is
// false of one that was given up meanwhile, or of which there is another one.
func (d *Deletions) Decide(one Deletion, confirmed bool, err error, now time.Time) (v Verdict, known bool) {
	key := one.Last.Key
	current, still := d.seen[key]
	switch {
	case !still || current.Last.UID != one.Last.UID || current.Revision != one.Revision:
		return None, false
	case err != nil && now.Sub(one.since) < askLimit:
		return None, true
	case err != nil:
		v = Unknown
	case confirmed:
		v = Confirmed
	case !current.refuted && now.Sub(one.since) < askLimit-AskPause:
		current.refuted, current.retryAt = true, now.Add(AskPause)
		d.seen[key] = current
		return None, true
	default:
		v = Refuted
	}
	return v, true
}

// Forget forgets a deletion.
func (d *Deletions) Forget(key stream.ResourceKey) { delete(d.seen, key) }

// Later has some asked about at a time, or before, and returns when.
func (d *Deletions) Later(at time.Time) time.Time {
	if d.retryAt.IsZero() || at.Before(d.retryAt) {
		d.retryAt = at
	}
	return d.retryAt
}

// Due reports whether some are to be asked about again, and when if that is later; zero
// for never.
func (d *Deletions) Due(now time.Time) (due bool, later time.Time) {
	switch {
	case d.retryAt.IsZero():
		return false, time.Time{}
	case now.Before(d.retryAt):
		return false, d.retryAt
	}
	d.retryAt = time.Time{}
	return true, time.Time{}
}

// Keys are the objects whose deletions are being confirmed, in order.
func (d *Deletions) Keys() []stream.ResourceKey {
	return slices.SortedFunc(maps.Keys(d.seen), stream.ResourceKey.Compare)
}

// Undecided reports whether an object is gone, and it is being found out what that
// means; uid is that of the object that is there. What was seen of an earlier one of
// that name is no news any more.
func (d *Deletions) Undecided(key stream.ResourceKey, gone bool, uid string) bool {
	one, seen := d.seen[key]
	switch {
	case !seen:
	case gone:
		return true
	case uid != one.Last.UID:
		delete(d.seen, key)
	}
	return false
}

// DeletionQueue collects deletions until they are drained. Its methods may be called concurrently.
type DeletionQueue struct {
	mu        sync.Mutex // guards what follows
	deletions []backends.Deletion
}

// Add adds one.
func (t *DeletionQueue) Add(d backends.Deletion) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deletions = append(t.deletions, d)
}

// Drain empties it, oldest first.
func (t *DeletionQueue) Drain() []backends.Deletion {
	t.mu.Lock()
	defer t.mu.Unlock()
	deletions := t.deletions
	t.deletions = nil
	return deletions
}
