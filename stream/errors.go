package stream

import (
	"errors"
)

// Kinds of failure that callers branch on. What becomes of the work follows from
// the kind, never from the text.
var (
	// ErrNotFound: the object is not there.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the object changed since it was read, or a precondition does
	// not hold. Read again and plan again.
	ErrConflict = errors.New("conflict")
	// ErrRefused: the API server will not take this content, now or later:
	// invalid, too large, forbidden, denied by admission.
	ErrRefused = errors.New("refused")
	// ErrUnavailable: the API server, or the way to it, is away. Try later.
	ErrUnavailable = errors.New("unavailable")
	// ErrNotConnected: the agent has no connection to this principal.
	ErrNotConnected = errors.New("agent is not connected")
	// ErrSilent: the agent has a connection, and does not answer on it.
	ErrSilent = errors.New("agent does not answer")
	// ErrRevoked: the registry no longer admits the agent.
	ErrRevoked = errors.New("the registry no longer admits the agent")
	// ErrIncompatible: the peer speaks another version of the protocol. Only an
	// upgrade of one of both helps.
	ErrIncompatible = errors.New("incompatible protocol")
	// ErrProtocol: the peer sent what the protocol does not allow, or says so of us.
	ErrProtocol = errors.New("protocol violation")
)

// Violation is a kind of ErrProtocol: what the peer did. It is a closed set. What
// this release merely does not know is none: see the package's comment.
type Violation string

const (
	// ViolationMalformed says that what was sent cannot be read, or a field of it is not what
	// it must be.
	ViolationMalformed Violation = "malformed"
	// ViolationHash says that the hash of content is not that of its data.
	ViolationHash Violation = "hash"
	// ViolationOrder says that a frame has no meaning at that moment.
	ViolationOrder Violation = "order"
	// ViolationDirection says that the frame, or the collection that it is about, flows the
	// other way.
	ViolationDirection Violation = "direction"
	// ViolationLimit says that it is longer, or more, than anyone needs.
	ViolationLimit Violation = "limit"
)

// Violations lists every kind.
func Violations() []Violation {
	return []Violation{ViolationMalformed, ViolationHash, ViolationOrder, ViolationDirection, ViolationLimit}
}

// Err returns an error of that kind, which wraps ErrProtocol. Its text names the
// kind and nothing else, so that the peer may read it.
func (v Violation) Err() error { return violationError{v} }

type violationError struct{ kind Violation }

func (e violationError) Error() string { return ErrProtocol.Error() + ": " + string(e.kind) }
func (e violationError) Unwrap() error { return ErrProtocol }

// ViolationOf returns the violation of the peer that err tells of; empty when it
// tells of none.
func ViolationOf(err error) Violation {
	var v violationError
	if errors.As(err, &v) {
		return v.kind
	}
	return ""
}

// RefusalKind says why a sink did not apply an entry. It is a closed set.
type RefusalKind string

const (
	// RefusalInvalid says that the content cannot be stored on this side.
	RefusalInvalid RefusalKind = "invalid"
	// RefusalNotOwned says that an object that is not this link's is in the way.
	RefusalNotOwned RefusalKind = "not-owned"
	// RefusalUnavailable says that the sink's API server did not answer as it should.
	RefusalUnavailable RefusalKind = "unavailable"
	// RefusalHeld says that the absence of an entry is not taken at its word until
	// someone accepts it.
	RefusalHeld RefusalKind = "held"
	// RefusalOutdated says that the sink has what was read at the source later.
	RefusalOutdated RefusalKind = "outdated"
	// RefusalUnsupported says that this side's release does not know such an event.
	RefusalUnsupported RefusalKind = "unsupported"
	// RefusalDenied says that the policy of the spoke's owner does not allow it.
	RefusalDenied RefusalKind = "denied"
	// RefusalContested says that someone on the sink's side changes back what is applied.
	// The source finds that; it does not travel.
	RefusalContested RefusalKind = "contested"
	// RefusalKept says that the sink keeps what the source has no longer. The source finds
	// that; it does not travel.
	RefusalKept RefusalKind = "kept"
	// RefusalNotCascaded says that the copy of an Application which was to go together with
	// its workloads is gone, and that they may not be.
	RefusalNotCascaded RefusalKind = "not-cascaded"
	// RefusalOverLimit says that the entry is larger than a limit of the sink's side admits,
	// or one too many.
	RefusalOverLimit RefusalKind = "over-limit"
	// RefusalUnknown stands for a kind of a peer newer than we are.
	RefusalUnknown RefusalKind = "unknown"
)

// ParseRefusalKind maps what it does not know to RefusalUnknown.
func ParseRefusalKind(s string) RefusalKind {
	switch k := RefusalKind(s); k {
	case RefusalInvalid, RefusalNotOwned, RefusalUnavailable, RefusalHeld, RefusalOutdated, RefusalUnsupported,
		RefusalDenied, RefusalNotCascaded, RefusalOverLimit:
		return k
	}
	return RefusalUnknown
}

// Passing reports whether a refusal is not about the content, and so may pass
// without a change of it.
func (k RefusalKind) Passing() bool {
	return k == RefusalUnavailable || k == RefusalHeld || k == RefusalOutdated
}

// RefusalKindOf returns the kind a sink reports for an error of its store.
func RefusalKindOf(err error) RefusalKind {
	if errors.Is(err, ErrRefused) {
		return RefusalInvalid
	}
	return RefusalUnavailable
}

// Invalid is the refusal of what cannot be read.
func Invalid(message string) *Refusal {
	return &Refusal{Kind: RefusalInvalid, Message: message}
}

// Refusal says why a sink did not apply an event.
type Refusal struct {
	Kind    RefusalKind
	Message string // for a person; names no address, path or secret
	// Awaits is the AppProject of the hub for whose copy the sink waits before it takes
	// the Application; empty for none.
	Awaits string
}
