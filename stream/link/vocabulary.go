package link

import "github.com/argomesh/argomesh/stream"

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
	// guard holds it back for its number or place.
	Accepted bool
}

// Held says what a sink holds now.
type Held struct {
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
	// that nobody has changed it.
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
	Paused     bool
	// LeavingOnly lets what announces its own end pass, and nothing else: neither
	// changes nor absences are told.
	LeavingOnly bool
}

func (Connected) input()    {}
func (Disconnected) input() {}
func (Received) input()     {}
func (Desired) input()      {}
func (Held) input()         {}
func (Tick) input()         {}
func (Paused) input()       {}

// Action is something the caller must do. The types below implement it.
type Action interface{ action() }

// Apply asks the caller to make the sink's store hold the event's content, and
// to answer by Held with the event's id, now or later.
type Apply struct{ Event stream.Event }

// Settled tells what the sink answered to an entry of ours.
type Settled struct {
	Key  stream.EntryKey
	Sent stream.Version // absent: a deletion
	// Current says that Sent is still the desired version.
	Current bool
	// Gone says that Sent announced the end of the entry, and that the sink holds
	// nothing any more.
	Gone    bool
	Held    stream.Version
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
	// CauseSilent is that nothing was heard from the peer for too long.
	CauseSilent Cause = "silent"
	// CauseProtocol is that the peer sent what it must not.
	CauseProtocol Cause = "protocol"
	// CauseStalled is that the peer takes nothing while more and more is to be said.
	CauseStalled Cause = "stalled"
	// CauseGoodbye is that the peer said so.
	CauseGoodbye Cause = "goodbye"
)

func (Apply) action()      {}
func (Settled) action()    {}
func (Disconnect) action() {}
