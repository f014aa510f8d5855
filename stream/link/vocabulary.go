package link

import (
	"errors"

	"github.com/argomesh/argomesh/stream"
)

// Input is something that happened. The types of this file implement it, and those of
// guard.go, cascade.go, seen.go and unfamiliar.go.
type Input interface{ input() }

// Connected begins a connection; one that was there before is forgotten. The
// stores of both the caller's sources and sinks have synced before the first.
type Connected struct {
	// ID is unique among the connections of this agent; event ids begin with it,
	// so that a late answer to an earlier process is never taken for one to us.
	ID string
	// SeenDeletes says that the peer carries out a Delete that names what was deleted
	// only on the copy of that very object: see Seen.
	SeenDeletes bool
}

// Disconnected ends the connection.
type Disconnected struct{}

// Received is a message of the peer on the current connection.
type Received struct{ Message stream.Message }

// Desired says that a source's entry has this version now. An absent version
// means that there is nothing under that key.
type Desired struct {
	Key     stream.EntryKey
	Version stream.Version
	// Leaving says that the entry announces its own end: the sink fulfils it by
	// holding nothing in the end.
	Leaving bool
	// Accepted says that someone accepted that the entry ends, or is absent, so that no
	// guard holds it back for its number or namespace.
	Accepted bool
}

// Stored says what a sink holds now.
type Stored struct {
	Key     stream.EntryKey
	Version stream.Version
	// Event is the id of the event this answers; empty when the store changed by
	// itself.
	Event string
	// Refusal says why the event was not applied.
	Refusal *stream.Refusal
	// Undone is stream.Result's.
	Undone string
	// Dropped are the paths that the store does not keep of Version, sorted.
	Dropped []string
	// Retry says that Version is not what was sent for a reason of the sink itself, and
	// that no one has changed it.
	Retry bool
}

// Tick lets time pass.
type Tick struct {
	// Waits says that what the peer sent waits on this side to be read, so that it is not
	// silent.
	Waits bool
}

// Paused stops or resumes what a source sends.
type Paused struct {
	Collection stream.Collection
	// Waits is what waits from now on.
	Waits Pause
}

// Pause is what of a source waits.
type Pause uint8

const (
	// PauseNone lets everything pass.
	PauseNone Pause = iota
	// PauseChanges lets what announces its own end pass, and what someone accepted: other
	// changes and absences are not told.
	PauseChanges
	// PauseAll lets nothing pass.
	PauseAll
)

func (Connected) input()    {}
func (Disconnected) input() {}
func (Received) input()     {}
func (Desired) input()      {}
func (Stored) input()       {}
func (Tick) input()         {}
func (Paused) input()       {}

// Action is something the caller must do. The types below implement it.
type Action interface{ action() }

// Apply asks the caller to make the sink's store hold the event's content, and
// to answer by Stored with the event's id, now or later.
type Apply struct{ Event stream.Event }

// Answered tells what the sink answered to an entry of ours.
type Answered struct {
	Key  stream.EntryKey
	Sent stream.Version // absent: a deletion
	// Current says that Sent is still the desired version.
	Current bool
	// Gone says that Sent announced the end of the entry, and that the sink holds
	// nothing any more.
	Gone    bool
	Stored  stream.Version
	Refusal *stream.Refusal
	// Undone is stream.Result's.
	Undone string
}

// Disconnect asks the caller to end the connection.
type Disconnect struct {
	Cause Cause
	// Violation is what the peer did; empty without CauseProtocol.
	Violation stream.Violation
}

func violates(v stream.Violation) Disconnect {
	return Disconnect{Cause: CauseProtocol, Violation: v}
}

// Cause is a closed set.
type Cause string

const (
	// CauseSilent is that nothing came from the peer for too long.
	CauseSilent Cause = "silent"
	// CauseProtocol is that the peer sent what it must not.
	CauseProtocol Cause = "protocol"
	// CauseStalled is that the peer takes nothing while more and more is to be said.
	CauseStalled Cause = "stalled"
	// CauseGoodbye is that the peer said so.
	CauseGoodbye Cause = "goodbye"
)

// Err is the cause as the end of a connection.
func (c Cause) Err() error {
	if c == CauseSilent {
		return stream.ErrSilent
	}
	return errors.New(string(c))
}

func (Apply) action()      {}
func (Answered) action()   {}
func (Disconnect) action() {}

// Content is what a source sends of one entry.
type Content struct {
	Version     stream.Version
	Leaving     bool
	Revision    uint64
	TraceParent string
	Data        []byte
	// GiveUp is what the event says of an entry that is not there: see stream.Event.
	GiveUp bool
	// Unproven says that it is not to be sent yet: the caller does not know whether it is
	// still there. It is asked for again after Proven or HistoryChecked.
	Unproven bool
}

// Proven says that the content of an entry may be asked for again that was Unproven.
type Proven struct{ Key stream.EntryKey }

func (Proven) input() {}

// Load returns the newest content of an entry of a source; false when there is
// none.
type Load func(stream.EntryKey) (Content, bool)

// Retry says that a sink may take now what it refused of an entry. The peer tries it
// again soon, if it still waits to.
type Retry struct{ Key stream.EntryKey }

func (Retry) input() {}

// Shortened tells that the peer says something new of what its API server does not
// keep of an entry of ours: see Link.Dropped.
type Shortened struct{ Key stream.EntryKey }

func (Shortened) action() {}

// Contested says that an entry of a source has become contested, or is no more: see
// Link.Contest.
type Contested struct{ Key stream.EntryKey }

func (Contested) action() {}

// RefusalEnded says that the peer holds an entry of a source that it had refused, though it did not
// answer so: it came to be there all the same.
type RefusalEnded struct{ Key stream.EntryKey }

func (RefusalEnded) action() {}

// CheckHistory asks the caller to check whether the history continues, by what the hub's
// API server says after this moment, and to answer by HistoryChecked, after Doomed where there
// are EndingNamespaces.
type CheckHistory struct{}

// Begin says that a new history may begin in place of one that did not continue:
// nothing is held back on its account, or what was has been accepted.
type Begin struct{}

// HistoryChecked answers CheckHistory.
type HistoryChecked struct {
	// Broken says for people why the history does not continue; empty when it does.
	Broken string
	// Unknown says that it could not be found out, and Broken means nothing.
	Unknown bool
	// Stale says that what the caller's store shows may be from before the break, so
	// that nothing follows from it as yet; it is to be checked again soon.
	Stale bool
}

// RecheckHistory says that the caller saw a reason to have the history checked again.
type RecheckHistory struct{}

// Accepted takes the absences at their word that Withheld names with this ID.
type Accepted struct{ ID string }

func (CheckHistory) action() {}

func (Begin) action() {}

func (HistoryChecked) input() {}

func (Accepted) input() {}

func (RecheckHistory) input() {}

// Verified says that the API server itself was asked about the object behind an entry
// that Unfamiliar named, and that what is desired of it follows from the answer.
type Verified struct{ Key stream.EntryKey }

func (Verified) input() {}

// verifiable reports whether the entries of c exist by the word of their source, or show
// what does.
func verifiable(c stream.Collection) bool { return c.Desired() || c == stream.Children }

// Seen says that the object behind an entry of a source of ours was seen to be deleted,
// and that nothing has taken its place. That is a fact and no absence: the guard does
// not count it. It still goes only once a HistoryChecked has said, after that and on this
// connection, that the history continues, only to a peer that checks what a Delete
// names (Connected.SeenDeletes), and only while the sink is known to hold a version of
// that UID. It outlives connections, and ends when a history does not continue.
//
// The caller bounds how many there are: see SeenDeletes. It has no effect where there
// is no guard.
type Seen struct {
	Key      stream.EntryKey
	UID      string
	Revision uint64 // of the deletion
}

func (Seen) input() {}

// Cascades is what the caller, who counts the entries that announce their end, makes of
// their number. The zero value holds nothing back.
type Cascades struct {
	// Held says for people why ends that the sink does not know of wait for someone;
	// empty when they do not.
	Held string
	// Counting says that more may come, so that ends wait, each countTime at most.
	Counting bool
}

// Doomed says, before the HistoryChecked that answers a CheckHistory, which of EndingNamespaces are being
// deleted with all that is in them.
type Doomed struct {
	// Namespaces has the reason for people, by the namespace of entries.
	Namespaces map[string]string
}

func (Cascades) input() {}

func (Doomed) input() {}
