package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// Kinds of errors, beside stream.ErrNotConnected and ServiceError. All wrap
// stream.ErrUnavailable.
var (
	// ErrNoSpare: the agent opened no stream in time that the dial could take.
	ErrNoSpare = fmt.Errorf("the agent has no spare stream: %w", stream.ErrUnavailable)
	// ErrBusy: as many dials wait already as may.
	ErrBusy = fmt.Errorf("too many dials wait for spare streams: %w", stream.ErrUnavailable)
	// ErrNoAnswer: the agent has not said in time whether it reached the service.
	ErrNoAnswer = fmt.Errorf("%w: %w", stream.ErrSilent, stream.ErrUnavailable)
	// ErrLost: the stream ended, or fell silent, in the midst of the connection.
	ErrLost = fmt.Errorf("the other end of the tunnel is lost: %w", stream.ErrUnavailable)
)

// Errors of one connection, which callers have no need to tell apart.
var (
	// errGone: what is written can no longer be read, by a peer that has ended its own
	// direction. Over TCP it is the same error.
	errGone = fmt.Errorf("the other end has closed the connection: %w", syscall.EPIPE)
	// errFinished: a write after CloseWrite.
	errFinished = errors.New("write after the end was written")
	// ErrIdleClosed: the stream ended before it was opened.
	ErrIdleClosed = errors.New("the stream ended before it was used")
	// errOverrun: of all streams of the agent more waits to be read than may.
	errOverrun = fmt.Errorf("too much of what the agent sent waits to be read: %w", stream.ErrUnavailable)
	// errLinger: the peer did not answer to the end.
	errLinger = errors.New("the other end did not close in time")
)

// ServiceError says that the agent is there, but does not, or no longer, connect to
// the service, and why. It wraps stream.ErrRefused when a configuration must change
// for it to work, and stream.ErrUnavailable when it may work later.
type ServiceError struct {
	Agent   identity.AgentName // zero at the agent
	Service stream.Service
	Reason  Reason
}

func (e *ServiceError) Error() string {
	side := "the agent"
	if !e.Agent.IsZero() {
		side = "agent " + e.Agent.String()
	}
	service := e.Service.String()
	switch e.Reason {
	case ReasonUnsupported:
		return side + " is not configured to serve " + service
	case ReasonDenied:
		return side + " does not allow this connection to " + service
	case ReasonUnreachable:
		return side + " cannot reach its " + service + "; its log says why"
	case ReasonTimeout:
		return side + " got no answer of its " + service + " in time"
	case ReasonFailed:
		return side + " lost its connection to its " + service
	case ReasonStopping:
		return side + " stops"
	case ReasonBusy:
		return side + " holds as much as it takes that its services have not read"
	}
	return side + " does not serve its " + service
}

func (e *ServiceError) Unwrap() error {
	if e.Reason == ReasonUnsupported || e.Reason == ReasonDenied {
		return stream.ErrRefused
	}
	return stream.ErrUnavailable
}

// ReasonOf is what the hub learns of an error of a Handler.
func ReasonOf(err error) Reason {
	var timeout net.Error
	switch {
	case errors.Is(err, identity.ErrDenied), errors.Is(err, stream.ErrRefused):
		return ReasonDenied
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) &&
		timeout.Timeout():
		return ReasonTimeout
	}
	return ReasonUnreachable
}
