package link

import (
	"time"

	"github.com/argomesh/argomesh/stream"
)

// entry is one entry of a source. There are as many as there are objects, nearly
// all of them at rest: what is known only of the others is in pending.
type entry struct {
	desired stream.Version
	pending *pending // nil for one at rest
	bucket  uint8
	// lacking says that the sink holds nothing of it: see held.
	lacking   bool
	leaving   bool
	queued    bool
	clearance clearance
	// withheld says that it left the queue unsent: the guard holds it back, or it is
	// unproven.
	withheld bool
}

// clearance is how far the guard lets the absence or the end of an entry go.
type clearance uint8

const (
	notAsked clearance = iota // no check was asked for since it is missing
	asked                     // one was
	cleared                   // a check lets it go, on this connection
	accepted                  // someone accepted it, on any connection
)

// resetClearance takes back what checks gave: the entry waits for one that is yet to be asked
// for. What someone accepted stays.
func (e *entry) resetClearance() {
	if e.clearance != accepted {
		e.clearance = notAsked
	}
}

// accepted reports whether someone accepted its absence or its end.
func (e *entry) accepted() bool { return e.clearance == accepted }

// pending is what is known of an entry that is under way, or was not taken as it
// was meant. The zero value says nothing.
type pending struct {
	// other is what the sink said it holds, if that is neither nothing nor the
	// desired version.
	other stream.Version
	event string // id of the event in flight; empty when there is none
	sent  stream.Version
	bytes int
	// gone is the leaving version that the sink answered by holding nothing.
	gone    stream.Version
	refusal *stream.Refusal
	// notStored says that the sink took a version and holds nothing of it. A newer one
	// waits as well: the sink says when it can store it.
	notStored bool
	// attempts counts the answers in a row after which the sink still did not hold
	// the desired version.
	attempts int
	retry    time.Time // when a parked entry is due; zero when not parked
	// reverts are those of someone on the sink's side, undone says what he does, and
	// contested that he does it again and again.
	reverts    Reverts
	revertedBy string
	contested  bool
	// retries counts what the sink asked for again for a reason of its own.
	retries Reverts
}

// ensurePending returns what is pending of e, for a change.
func (e *entry) ensurePending() *pending {
	if e.pending == nil {
		e.pending = new(pending)
	}
	return e.pending
}

// dropPending forgets what is pending of e if that says nothing.
func (e *entry) dropPending() {
	if e.pending != nil && *e.pending == (pending{}) {
		e.pending = nil
	}
}

// stored is what the sink said it holds: nothing, something else than is desired, or,
// as nearly always, what is desired, of which no second copy is kept.
func (e *entry) stored() stream.Version {
	switch {
	case e.lacking:
		return stream.Version{}
	case e.pending != nil && !e.pending.other.Absent():
		return e.pending.other
	}
	return e.desired
}

// setStored notes what the sink said it holds.
func (e *entry) setStored(v stream.Version) {
	e.lacking = v.Absent()
	if v == e.desired {
		v = stream.Version{}
	}
	if e.pending != nil || !v.Absent() {
		e.ensurePending().other = v
	}
}

// desire changes what the sink should hold, and not what it does.
func (e *entry) desire(v stream.Version) {
	held := e.stored()
	e.desired = v
	e.setStored(held)
}

// inFlight is the id of the event in flight; empty when there is none.
func (e *entry) inFlight() string {
	if e.pending == nil {
		return ""
	}
	return e.pending.event
}

// gone is the leaving version that the sink answered by holding nothing.
func (e *entry) gone() stream.Version {
	if e.pending == nil {
		return stream.Version{}
	}
	return e.pending.gone
}

// refusal is the sink's answer to the desired version; nil when it did not refuse.
func (e *entry) refusal() *stream.Refusal {
	if e.pending == nil {
		return nil
	}
	return e.pending.refusal
}

// parked is when e is due; zero when it is not parked.
func (e *entry) parked() time.Time {
	if e.pending == nil {
		return time.Time{}
	}
	return e.pending.retry
}

// resetBackoff lets e start over, without the attempts so far.
func (e *entry) resetBackoff() {
	if p := e.pending; p != nil {
		p.attempts, p.retry, p.refusal, p.notStored = 0, time.Time{}, nil, false
	}
}

// clearInFlight takes the event of e out of flight.
func (e *entry) clearInFlight() {
	if p := e.pending; p != nil {
		p.event, p.sent, p.bytes = "", stream.Version{}, 0
	}
}

// satisfied reports whether the sink holds what it should.
func (e *entry) satisfied() bool {
	held := e.stored()
	if e.leaving && held.Absent() {
		return e.gone() == e.desired
	}
	return held == e.desired
}

// missing reports whether the sink holds an entry that the source has not: it has
// nothing, or the end of another object of that name.
func (e *entry) missing() bool {
	held := e.stored()
	return !held.Absent() && (e.desired.Absent() || e.leaving && held.SourceUID != e.desired.SourceUID)
}

// another reports whether the sink holds another object than the one of that name
// that it should.
func (e *entry) another() bool {
	held := e.stored()
	return !held.Absent() && !e.desired.Absent() && held.SourceUID != e.desired.SourceUID
}

// ownedByOther reports whether the sink does not let us have the object that it holds: one
// that is another hub's until the break of the history is accepted.
func (e *entry) ownedByOther() bool {
	return e.another() && e.refusal() != nil && e.refusal().Kind == stream.RefusalNotOwned
}

func (e *entry) contested() bool { return e.pending != nil && e.pending.contested }
