package link

import (
	"container/heap"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// noteReverted notes that someone on the sink's side undid what was applied, of which the
// sink now holds held.
func (s *source) noteReverted(now time.Time, key stream.EntryKey, e *entry, held stream.Version) {
	p := e.ensurePending()
	p.reverts.Add(now)
	s.agenda.calmAt(now.Add(ContestWindow), key)
	switch {
	case held.Absent():
		p.revertedBy = revertedByDeletion
	case p.revertedBy == "" || p.revertedBy == revertedByDeletion:
		p.revertedBy = RevertText("") // until the sink says what it put back
	}
	switch {
	case !p.reverts.Contested():
	case !Contestable(s.collection):
		p.attempts = p.reverts.count
		s.agenda.park(now, key, e)
	default:
		if !p.contested {
			p.contested = true
			s.contestChanges = append(s.contestChanges, key)
		}
		s.agenda.parkFor(now, key, e, contestPause)
	}
}

// retried reports whether a sink that does not hold what it was sent says that no one has
// changed that, and it does not say so again and again.
func (s *source) retried(now time.Time, r stream.Result, e *entry) bool {
	if !r.Retry {
		return false
	}
	p := e.ensurePending()
	p.retries.Add(now)
	s.agenda.calmAt(now.Add(ContestWindow), r.Key)
	return p.retries.count <= retryFree
}

// putBack notes what the sink says that it put back.
func (s *source) putBack(key stream.EntryKey, e *entry, paths string) {
	p := e.ensurePending()
	if does := RevertText(paths); paths != "" && p.revertedBy != does {
		if p.revertedBy = does; p.contested {
			s.contestChanges = append(s.contestChanges, key)
		}
	}
}

// calmAt has calm look at an entry.
func (a *agenda) calmAt(at time.Time, key stream.EntryKey) {
	if len(a.calming) >= a.crowd() {
		a.calming.filter(func(d due) bool {
			e := a.entries.get(d.key)
			return e != nil && e.pending != nil &&
				(e.pending.reverts.last.Add(ContestWindow).Equal(d.at) ||
					e.pending.retries.last.Add(ContestWindow).Equal(d.at))
		})
	}
	heap.Push(&a.calming, due{at: at, key: key})
}

// calm forgets what was not changed back for long enough.
func (s *source) calm(now time.Time) {
	for len(s.agenda.calming) > 0 && !s.agenda.calming[0].at.After(now) {
		d, _ := heap.Pop(&s.agenda.calming).(due)
		e := s.entries.get(d.key)
		if e == nil || e.pending == nil {
			continue
		}
		if e.pending.retries.Expired(now) {
			e.pending.retries = Reverts{}
		}
		if !e.pending.reverts.Expired(now) {
			continue
		}
		if p := e.pending; p.contested {
			p.contested = false
			s.contestChanges = append(s.contestChanges, d.key)
		}
		e.pending.reverts, e.pending.revertedBy = Reverts{}, ""
		e.dropPending()
	}
}

// resumeContests goes on with what is contested on a new connection: no one knows what
// happened meanwhile.
func (s *source) resumeContests(now time.Time) {
	for key, e := range s.entries.all() {
		if e.contested() {
			e.pending.reverts.last = now
			s.agenda.calmAt(now.Add(ContestWindow), key)
		}
	}
}

// contest is what is contested about e, for people of the side of its source; nil for
// nothing.
func (e *entry) contest(side stream.Side) *stream.Refusal {
	if !e.contested() {
		return nil
	}
	there := stream.Spoke
	if side == stream.Spoke {
		there = stream.Hub
	}
	refusal := ContestedBy(there, e.pending.revertedBy)
	return &refusal
}
