package link

import (
	"container/heap"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// What somebody on the sink's side changes back is mended contestFree times at once.
// When that goes on it is contested: the entry counts as parked, says so, and is sent
// once in contestPause, since two writers that fight must not be an endless loop. It
// ends when nothing was changed back for ContestMemory.
const (
	contestFree  = 3
	contestPause = time.Minute
	// retryFree is how often a sink may ask for an entry again, within ContestMemory, before
	// that counts as changed back: whatever it says there must be no endless loop.
	retryFree = 12
	// ContestMemory is how long it is remembered that something was changed back.
	ContestMemory = 5 * time.Minute
)

// Contested says that an entry of a source has become contested, or is no more: see
// Link.Contest.
type Contested struct{ Key stream.EntryKey }

func (Contested) action() {}

// Contestable reports whether an entry of c can be contested. A status is followed by
// a newer one before long, and the hub's own writes are part of what it shows.
func Contestable(c stream.Collection) bool { return guarded(c) }

// Undoings counts how often something was changed back, without a pause longer than
// ContestMemory. The zero value is never.
type Undoings struct {
	count int
	last  time.Time
}

// Note counts one.
func (u *Undoings) Note(now time.Time) {
	if u.Over(now) {
		u.count = 0
	}
	u.count, u.last = u.count+1, now
}

// Contested reports whether there were too many for a coincidence.
func (u *Undoings) Contested() bool { return u.count > contestFree }

// Spent reports whether as many were mended at once as are. The sink, which counts what
// it put back, cannot know of one more before that is put back a minute later.
func (u *Undoings) Spent() bool { return u.count >= contestFree }

// Over reports whether there was none for long enough to forget them.
func (u *Undoings) Over(now time.Time) bool { return now.Sub(u.last) >= ContestMemory }

// Contest says of an entry of our source what somebody on the peer's side changes back
// again and again; nil when nobody does.
func (l *Link) Contest(key stream.EntryKey) *stream.Refusal {
	if s := l.source(key.Collection); s != nil {
		if e := s.entries.get(key); e != nil {
			return l.contest(e)
		}
	}
	return nil
}

func (l *Link) contest(e *entry) *stream.Refusal {
	if !e.contested() {
		return nil
	}
	side := stream.Spoke
	if l.cfg.Side == stream.Spoke {
		side = stream.Hub
	}
	refusal := ContestedBy(side, e.pending.undone)
	return &refusal
}

// ContestedBy is a refusal that says what somebody on a side does again and again, as
// Undone says it.
func ContestedBy(side stream.Side, does string) stream.Refusal {
	return stream.Refusal{Kind: stream.RefusalContested, Message: "somebody on the " + side.String() + " " + does}
}

// Undone says for people what somebody does who changes what is at paths, or something
// that is not known when that is empty.
func Undone(paths string) string {
	if paths == "" {
		return "changes it back"
	}
	return "changes it back: " + paths
}

const undoneByDeletion = "deletes it"

func (e *entry) contested() bool { return e.pending != nil && e.pending.contested }

// undone notes that somebody on the sink's side undid what was applied, of which the
// sink now holds held.
func (s *source) undone(now time.Time, key stream.EntryKey, e *entry, held stream.Version) {
	p := e.pend()
	p.undoings.Note(now)
	s.calmAt(now.Add(ContestMemory), key)
	switch {
	case held.Absent():
		p.undone = undoneByDeletion
	case p.undone == "" || p.undone == undoneByDeletion:
		p.undone = Undone("") // until the sink says what it put back
	}
	switch {
	case !p.undoings.Contested():
	case !Contestable(s.collection):
		p.attempts = p.undoings.count
		s.park(now, key, e)
	default:
		if !p.contested {
			p.contested = true
			s.turned = append(s.turned, key)
		}
		s.parkFor(now, key, e, contestPause)
	}
}

// retried reports whether a sink that does not hold what it was sent says that nobody has
// changed that, and it does not say so again and again.
func (s *source) retried(now time.Time, r stream.Result, e *entry) bool {
	if !r.Retry {
		return false
	}
	p := e.pend()
	p.retries.Note(now)
	s.calmAt(now.Add(ContestMemory), r.Key)
	return p.retries.count <= retryFree
}

// putBack notes what the sink says that it put back.
func (s *source) putBack(key stream.EntryKey, e *entry, paths string) {
	p := e.pend()
	if does := Undone(paths); paths != "" && p.undone != does {
		if p.undone = does; p.contested {
			s.turned = append(s.turned, key)
		}
	}
}

// calmAt has calm look at an entry.
func (s *source) calmAt(at time.Time, key stream.EntryKey) {
	if len(s.calming) >= s.crowd() {
		s.calming.keep(func(d due) bool {
			e := s.entries.get(d.key)
			return e != nil && e.pending != nil &&
				(e.pending.undoings.last.Add(ContestMemory).Equal(d.at) || e.pending.retries.last.Add(ContestMemory).Equal(d.at))
		})
	}
	heap.Push(&s.calming, due{at: at, key: key})
}

// calm forgets what was not changed back for long enough.
func (s *source) calm(now time.Time) {
	for len(s.calming) > 0 && !s.calming[0].at.After(now) {
		d, _ := heap.Pop(&s.calming).(due)
		e := s.entries.get(d.key)
		if e == nil || e.pending == nil {
			continue
		}
		if e.pending.retries.Over(now) {
			e.pending.retries = Undoings{}
		}
		if !e.pending.undoings.Over(now) {
			continue
		}
		if p := e.pending; p.contested {
			p.contested = false
			s.turned = append(s.turned, d.key)
		}
		e.pending.undoings, e.pending.undone = Undoings{}, ""
		e.rest()
	}
}

// contend goes on with what is contested on a new connection: nobody knows what
// happened meanwhile.
func (s *source) contend(now time.Time) {
	for key, e := range s.entries.all() {
		if e.contested() {
			e.pending.undoings.last = now
			s.calmAt(now.Add(ContestMemory), key)
		}
	}
}

// Taken says that the peer holds an entry of a source that it had refused, though it did not
// answer so: it came to be there all the same.
type Taken struct{ Key stream.EntryKey }

func (Taken) action() {}

// turned are the actions for what has become contested, or is no more, and for what was
// refused and is held.
func (l *Link) turned() []Action {
	var actions []Action
	for _, s := range l.sources {
		for _, key := range s.turned {
			actions = append(actions, Contested{Key: key})
		}
		for _, key := range s.taken {
			actions = append(actions, Taken{Key: key})
		}
		s.turned, s.taken = nil, nil
	}
	return actions
}
