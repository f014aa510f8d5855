package mirror

import (
	"context"
	"time"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/view"
	asked "github.com/argomesh/argomesh/backends/witness"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// witness asks the API server, by quorum reads, whether a deletion that was seen was one, and
// whether an Application that is to be made is there still.
type witness struct {
	*shared
	deletions asked.Deletions // of Applications of the hub, while they are being confirmed
	proofs    asked.Proofs    // which Applications are known to be there still
}

// see takes note of a deletion of which the API server told, if it was the agent's and
// the spoke may have it.
func (w *witness) see(d backends.Deletion) {
	key := d.Last.Key
	if key.Kind != stream.Application || len(w.rules.Keys(key)) == 0 || w.known.broken ||
		!w.link.MayStore(w.rules.Entry(stream.Applications, key)) {
		return
	}
	if last, err := object.Parse(d.Last); err != nil || !w.rules.WasSent(last) {
		return
	}
	if w.deletions.Len()+w.link.SeenDeletes() >= asked.MaxDeletions {
		w.env.cfg.Metrics.Deleted("dropped")
		return
	}
	w.deletions.See(d, time.Now())
	w.confirm()
}

// confirm has deletions confirmed beside the loop, unless that is under way.
func (w *witness) confirm() {
	batch, next := w.deletions.Batch(time.Now())
	if !next.IsZero() {
		w.scheduleLook(next)
	}
	if len(batch) == 0 {
		return
	}
	deletions := make([]backends.Deletion, len(batch))
	for i, d := range batch {
		deletions[i] = d.Deletion
	}
	w.spawn = append(w.spawn, func(ctx context.Context) {
		asking, cancel := context.WithTimeout(ctx, asked.AskTime)
		defer cancel()
		confirmed, err := w.env.cfg.Confirm(asking, deletions)
		// When the loop has ended no one is left to tell.
		_ = w.env.do(ctx, func() { w.confirmed(batch, confirmed, err) })
	})
}

// confirmed takes the answers about a batch.
func (w *witness) confirmed(batch []asked.Deletion, confirmed []bool, err error) {
	w.deletions.Answered()
	if err != nil {
		w.env.log.Warn().Err(err).Msg("cannot confirm deletions that the hub's API server reported, retrying")
	}
	for i, d := range batch {
		key := d.Last.Key
		verdict, known := w.deletions.Decide(d, err == nil && confirmed[i], err, time.Now())
		if !known || verdict == asked.None {
			continue
		}
		if verdict == asked.Confirmed {
			w.step(link.Seen{Key: w.rules.Entry(stream.Applications, key), UID: d.Last.UID, Revision: d.Revision})
		}
		w.absent(key, verdict)
	}
	if err != nil {
		w.scheduleLook(w.deletions.Later(time.Now().Add(asked.AskPause)))
		return
	}
	w.confirm()
}

// absent lets the link see that an Application is gone, now that it is known why.
func (w *witness) absent(key stream.ResourceKey, verdict asked.Verdict) {
	w.env.cfg.Metrics.Deleted(string(verdict))
	w.deletions.Forget(key)
	w.observe(key)
}

// confirmLater asks again after the pause.
func (w *witness) confirmLater() {
	due, later := w.deletions.Due(time.Now())
	if !later.IsZero() {
		w.scheduleLook(later)
	}
	if due {
		w.confirm()
	}
}

// unsee makes absences of the deletions that are being confirmed: the history in which
// they were seen does not continue.
func (w *witness) unsee() {
	for _, key := range w.deletions.Keys() {
		w.absent(key, asked.Unknown)
	}
}

// undecided reports whether an object is gone, and it is being found out what that means.
func (w *witness) undecided(key stream.ResourceKey, current *object.Object) bool {
	if current == nil {
		return w.deletions.Undecided(key, true, "")
	}
	return w.deletions.Undecided(key, false, current.UID())
}

// unproven reports whether an Application that the spoke would make is not known to be there
// still. It is asked about then.
func (w *witness) unproven(entry stream.EntryKey, content link.Content) bool {
	if !w.counts(entry) || w.env.cfg.History == nil || content.Leaving ||
		w.link.Believed(entry).SourceUID == content.Version.SourceUID {
		return false
	}
	if !w.known.checked {
		return true // the check says whether that is needed
	}
	key, _ := w.rules.Local(entry)
	current, found := w.view.Newest(key)
	if !found || !w.proofs.Wants(key, current.UID) {
		return false
	}
	w.prove()
	return true
}

// prove begins a round unless one is under way.
func (w *witness) prove() {
	if w.session == nil {
		return
	}
	round, next := w.proofs.Begin(time.Now())
	if !next.IsZero() {
		w.scheduleLook(next)
	}
	if len(round.Keys) == 0 {
		return
	}
	w.spawn = append(w.spawn, func(ctx context.Context) {
		reading, cancel := context.WithTimeout(ctx, asked.ProofTime)
		defer cancel()
		found := round.Read(reading, w.env.cfg.Store)
		// When the loop has ended no one is left to tell.
		_ = w.env.do(ctx, func() { w.proven(round, found) })
	})
}

// proven takes what a round found. What the cache does not show yet counts from now on.
func (w *witness) proven(round asked.Round, found []asked.Reading) {
	if !w.proofs.End(round) {
		w.prove()
		return
	}
	var failed error
	for i, key := range round.Keys {
		current, there := w.view.Newest(key)
		proof := w.proofs.Decide(key, found[i], current, there)
		if proof.Result != "" {
			w.env.cfg.Metrics.Proven(proof.Result)
		}
		switch {
		case proof.Err != nil:
			failed = proof.Err
			continue
		case proof.Behind && found[i].Object.UID == "":
			w.foresee(key, nil, current.UID)
		case proof.Behind:
			w.foresee(key, &found[i].Object, found[i].Object.UID)
		}
		w.observe(key)
		w.step(link.Proven{Key: w.rules.Entry(stream.Applications, key)})
	}
	if failed != nil {
		w.env.log.Warn().Err(failed).Msg("cannot read Applications that are to be created on the spoke, retrying")
		w.proofs.Pause(time.Now())
	}
	w.prove()
}

// foresee notes what the API server has while the cache does not show it; nil for nothing.
func (w *witness) foresee(key stream.ResourceKey, o *backends.Object, uid string) {
	now := time.Now()
	w.view.Wrote(key, o, uid, w.rules.Schemas, now)
	w.scheduleLook(now.Add(view.CatchUpTime))
}
