package mirror

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

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

// sees reports whether this side can see deletions: it is the hub of a managed agent,
// and somebody confirms them. The mirrors of an autonomous agent have their source on
// the spoke.
func (cfg Config) sees() bool {
	return cfg.Confirm != nil && cfg.Rules.Side == stream.Hub && cfg.Rules.Mode == stream.Managed
}

// catchUp looks at all that the cache has come to show.
func (l *loop) catchUp() {
	keys := l.m.changed.take() // first: of each of them the store has told the deletion before
	for _, d := range l.m.deleted.take() {
		l.see(d)
	}
	l.observeAll(keys)
}

// see takes note of a deletion of which the API server told, if it was the agent's and
// the spoke may have it.
func (l *loop) see(d backends.Deletion) {
	key := d.Last.Key
	if key.Kind != stream.Application || len(l.rules.Keys(key)) == 0 || l.past.broken ||
		!l.link.MayHold(l.rules.entry(stream.Applications, key)) {
		return
	}
	if last, err := parseObject(d.Last); err != nil || !l.rules.wasSent(last) {
		return
	}
	if len(l.seen)+l.link.SeenDeletes() >= maxSeen {
		l.m.cfg.Metrics.deleted("dropped")
		return
	}
	d.Last.Raw = nil
	l.seen[key] = seenDeletion{Deletion: d, since: time.Now()}
	l.confirmDeletions()
}

// confirmDeletions has deletions confirmed beside the loop, the oldest first, unless that is
// under way.
func (l *loop) confirmDeletions() {
	if l.confirming || len(l.seen) == 0 {
		return
	}
	batch := make([]seenDeletion, 0, len(l.seen))
	now := time.Now()
	for _, d := range l.seen {
		if d.again.After(now) {
			l.confirmAt(d.again)
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
	l.confirming = true
	l.spawn = append(l.spawn, func(ctx context.Context) {
		asking, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		confirmed, err := l.m.cfg.Confirm(asking, deletions)
		// When the loop has ended nobody is left to tell.
		_ = l.m.do(ctx, func(l *loop) { l.deletionsConfirmed(batch, confirmed, err) })
	})
}

// deletionsConfirmed takes the answers about a batch.
func (l *loop) deletionsConfirmed(batch []seenDeletion, confirmed []bool, err error) {
	l.confirming = false
	if err != nil {
		l.m.log.Warn().Err(err).Msg("cannot confirm deletions that the API server of the hub told of, trying again")
	}
	for i, d := range batch {
		key := d.Last.Key
		now, still := l.seen[key]
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
			l.seen[key] = now
			continue
		case !confirmed[i]:
			result = "refuted"
		default:
			l.step(link.Seen{Key: l.rules.entry(stream.Applications, key), UID: d.Last.UID, Revision: d.Revision})
		}
		l.m.cfg.Metrics.deleted(result)
		delete(l.seen, key)
		l.observe(key)
	}
	if err != nil {
		l.confirmAt(time.Now().Add(askPause))
		return
	}
	l.confirmDeletions()
}

// confirmAt has deletions confirmed at a time, or before.
func (l *loop) confirmAt(at time.Time) {
	if l.confirmAgain.IsZero() || at.Before(l.confirmAgain) {
		l.confirmAgain = at
	}
	l.lookAt(l.confirmAgain)
}

// confirmDeletionsLater asks again after the pause.
func (l *loop) confirmDeletionsLater() {
	switch {
	case l.confirmAgain.IsZero():
	case time.Now().Before(l.confirmAgain):
		l.lookAt(l.confirmAgain)
	default:
		l.confirmAgain = time.Time{}
		l.confirmDeletions()
	}
}

// unsee makes absences of the deletions that are being confirmed: the history in which
// they were seen does not continue.
func (l *loop) unsee() {
	for _, key := range slices.SortedFunc(maps.Keys(l.seen), byKey) {
		delete(l.seen, key)
		l.m.cfg.Metrics.deleted("unknown")
		l.observe(key)
	}
}

// undecided reports whether an object is gone, and it is being found out what that
// means. What was seen of an earlier one of that name is no news any more.
func (l *loop) undecided(key stream.ResourceKey, current *object) bool {
	d, seen := l.seen[key]
	switch {
	case !seen:
	case current == nil:
		return true
	case current.uid() != d.Last.UID:
		delete(l.seen, key)
	}
	return false
}

// wasSent reports whether a hub Application was the agent's, as it was last. That it was
// being deleted, with its workloads or without, makes no difference.
func (r Rules) wasSent(o object) bool {
	return r.sources(stream.Applications) && o.label(ignoreSyncKey) != "true" && r.uidIn(stream.Applications, o) != "" && r.unsendable(o) == ""
}

// spares says why a copy is not the one that an event wants to be deleted: it is of
// another object than the one that is gone, or of a later state of the hub than that in
// which its deletion was seen.
// An event that does not name what was deleted is about whatever there is.
func (r Rules) spares(e stream.Event, current *object) *stream.Refusal {
	if e.Deleted == "" || current == nil || !r.isCopy(*current) {
		return nil
	}
	rec, _ := recordOf(*current)
	switch {
	case current.annotation(sourceUIDKey) != e.Deleted:
		return &stream.Refusal{Kind: stream.RefusalOutdated, Message: "the object that was deleted is not the one of which this is a copy"}
	case e.Revision != 0 && r.HistoryID != "" && rec.History == r.HistoryID && rec.Revision > e.Revision:
		return &stream.Refusal{
			Kind:    stream.RefusalOutdated,
			Message: fmt.Sprintf("it was deleted at revision %d, and this is a copy of what was read at revision %d", e.Revision, rec.Revision),
		}
	}
	return nil
}
