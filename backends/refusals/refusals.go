// Package refusals remembers what of a peer this side did not take, and why: Refusals, what waits for
// an AppProject (Awaiting), and what someone changes back again and again (Contests). Each is
// bounded, since a peer can invent entries. Pure.
package refusals

import (
	"cmp"
	"slices"
	"time"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/stream"
)

const (
	// refusalTime is how long a refusal of ours stands when its entry does not come
	// again. The peer tries a parked entry every six minutes at least, and says nothing
	// of one that is gone and that we never stored.
	refusalTime = 15 * time.Minute
	// MaxRefusals bounds the refusals that are remembered, since a peer can invent entries:
	// with the names and the text of each they take about 6 MiB. The peer still learns of one
	// beyond, but this side shows it only once there is room.
	MaxRefusals = 1 << 13
)

// Refusals are the entries of the peer that this side's API server did not take
// when they last came. The peer knows too, but only this side's people may be the
// ones who look.
type Refusals map[stream.EntryKey]refusedEntry

type refusedEntry struct {
	refusal stream.Refusal
	version stream.Version // that was refused
	at      time.Time
	// obstacle is what stood where the entry's object would be, for which it was refused.
	obstacle obstacle
}

// obstacle is an object that is not ours, as far as it says whether we may have its place;
// zero for none.
type obstacle struct{ uid, policy string }

func obstacleOf(current *object.Object) obstacle {
	if current == nil {
		return obstacle{}
	}
	return obstacle{current.UID(), current.Annotation(object.AdoptionPolicyKey)}
}

// StoodIn notes for which object of its place an entry was refused.
func (r Refusals) StoodIn(key stream.EntryKey, current *object.Object) {
	if e, refused := r[key]; refused && e.refusal.Kind == stream.RefusalNotOwned {
		e.obstacle = obstacleOf(current)
		r[key] = e
	}
}

// Freed reports, once, whether the object for which an entry was refused has gone, is
// another one, or has another word on its adoption: the entry may be taken now.
func (r Refusals) Freed(key stream.EntryKey, current *object.Object) bool {
	e := r[key]
	if e.obstacle == (obstacle{}) || e.obstacle == obstacleOf(current) {
		return false
	}
	e.obstacle = obstacle{}
	r[key] = e
	return true
}

// Record remembers the answer to an entry; nil for one that was taken.
func (r Refusals) Record(e stream.Event, refusal *stream.Refusal, now time.Time) {
	if refusal == nil || refusal.Kind.Passing() {
		delete(r, e.Key) // taken, or soon
		return
	}
	if _, known := r[e.Key]; !known && len(r) >= MaxRefusals {
		return
	}
	r[e.Key] = refusedEntry{refusal: *refusal, version: e.Version, at: now}
}

// Stored notes what is stored of an entry: what was refused may have come to be there all the
// same, as by a write of which the reply was lost and that was refused when it came again.
func (r Refusals) Stored(key stream.EntryKey, v stream.Version) {
	if !v.Absent() && r[key].version == v {
		delete(r, key)
	}
}

// Active forgets what is too old and returns the rest.
func (r Refusals) Active(now time.Time) map[stream.EntryKey]stream.Refusal {
	out := make(map[stream.EntryKey]stream.Refusal, len(r))
	for key, e := range r {
		if now.Sub(e.at) > refusalTime {
			delete(r, key)
			continue
		}
		out[key] = e.refusal
	}
	return out
}

// Of is the refusal of an entry that stands; false for none.
func (r Refusals) Of(key stream.EntryKey) (stream.Refusal, bool) {
	e, refused := r[key]
	return e.refusal, refused
}

// OfKind are the entries that were refused so, in order.
func (r Refusals) OfKind(kind stream.RefusalKind) []stream.EntryKey {
	var keys []stream.EntryKey
	for key, e := range r {
		if e.refusal.Kind == kind {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b stream.EntryKey) int { return cmp.Compare(a.String(), b.String()) })
	return keys
}
