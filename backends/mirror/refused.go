package mirror

import (
	"maps"
	"time"

	"github.com/argomesh/argomesh/stream"
)

const (
	// refusalMemory is how long a refusal of ours stands when its entry does not come
	// again. The peer tries a parked entry every six minutes at least, and says nothing
	// of one that is gone and that we never held.
	refusalMemory = 15 * time.Minute
	// maxRefusals bounds the refusals that are remembered, since a peer can invent
	// entries.
	maxRefusals = 1 << 16
)

// refusals are the entries of the peer that this side's API server did not take
// when they last came. The peer knows too, but only this side's people may be the
// ones who look.
type refusals map[stream.EntryKey]refusedEntry

type refusedEntry struct {
	refusal stream.Refusal
	version stream.Version // that was refused
	at      time.Time
	// over is what stood where the entry's object would be, for which it was refused.
	over obstacle
}

// obstacle is an object that is not ours, as far as it says whether we may have its place;
// zero for none.
type obstacle struct{ uid, policy string }

func obstacleOf(current *object) obstacle {
	if current == nil {
		return obstacle{}
	}
	return obstacle{current.uid(), current.annotation(adoptionPolicyKey)}
}

// stoodIn notes for which object of its place an entry was refused.
func (r refusals) stoodIn(key stream.EntryKey, current *object) {
	if e, refused := r[key]; refused && e.refusal.Kind == stream.RefusalNotOwned {
		e.over = obstacleOf(current)
		r[key] = e
	}
}

// freed reports, once, whether the object for which an entry was refused has gone, is
// another one, or has another word on its adoption: the entry may be taken now.
func (r refusals) freed(key stream.EntryKey, current *object) bool {
	e := r[key]
	if e.over == (obstacle{}) || e.over == obstacleOf(current) {
		return false
	}
	e.over = obstacle{}
	r[key] = e
	return true
}

// note remembers the answer to an entry; nil for one that was taken.
func (r refusals) note(e stream.Event, refusal *stream.Refusal, now time.Time) {
	if refusal == nil || refusal.Kind.Passing() {
		delete(r, e.Key) // taken, or soon
		return
	}
	if _, known := r[e.Key]; !known && len(r) >= maxRefusals {
		return
	}
	r[e.Key] = refusedEntry{refusal: *refusal, version: e.Version, at: now}
}

// held notes what is held of an entry: what was refused may have come to be there all the
// same, as by a write of which the reply was lost and that was refused when it came again.
func (r refusals) held(key stream.EntryKey, v stream.Version) {
	if !v.Absent() && r[key].version == v {
		delete(r, key)
	}
}

// standing forgets what is too old and returns the rest.
func (r refusals) standing(now time.Time) map[stream.EntryKey]stream.Refusal {
	out := make(map[stream.EntryKey]stream.Refusal, len(r))
	for key, e := range r {
		if now.Sub(e.at) > refusalMemory {
			delete(r, key)
			continue
		}
		out[key] = e.refusal
	}
	return out
}

// parked are the entries that either side refused, or changes back again and again, and
// those of which a part was left out.
func (l *loop) parked() map[stream.EntryKey]stream.Refusal {
	parked := l.link.Parked()
	for entry, refusal := range parked {
		if entry.Collection == stream.AppProjects && refusal.Kind == stream.RefusalUnavailable && l.link.Desired(entry).Absent() {
			refusal.Kind = stream.RefusalKept // the spoke has it, and says for what
			parked[entry] = refusal
		}
	}
	maps.Copy(parked, l.lacking)
	for entry := range l.contests {
		if refusal := l.contests.refusal(entry, l.rules.Side); refusal != nil {
			parked[entry] = *refusal
		}
	}
	maps.Copy(parked, l.refused.standing(time.Now()))
	if entry, refusal, is := l.untold(); is {
		parked[entry] = refusal
	}
	return parked
}
