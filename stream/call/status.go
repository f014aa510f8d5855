package call

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// Kinds of errors for which a call ends, beside those of package stream.
var (
	// ErrDraining: the principal stops in good order.
	ErrDraining = errors.New("the principal is stopping")
	// ErrExpired: the caller's authority is over.
	ErrExpired = errors.New("the svid that opened the connection has expired and no newer one was proven")
	// ErrMismatch: what the agent was configured with is not what the registry says.
	ErrMismatch = errors.New("configuration mismatch")
	// ErrUnproven: the principal has no proof of itself for the caller now. Try later.
	ErrUnproven = errors.New("the principal cannot prove itself now")
	// ErrImpostor: what answered an agent has not proven to be the principal.
	ErrImpostor = errors.New("the principal is not proven")
	// ErrBusy: the principal has as many of these calls as it takes. Try later.
	ErrBusy = errors.New("the principal takes no more of these calls now")
)

// suspendedText tells an agent of identity.ErrSuspended; one of an older release takes
// it for a sentence.
const suspendedText = "this agent is suspended on the hub"

// StatusOf is the one place where kinds of errors become gRPC codes. The cause of
// ctx goes before err. The text names no address, path or secret, and to a stranger
// not even what is wrong.
func StatusOf(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrDraining), errors.Is(err, ErrDraining):
		return status.Error(codes.Unavailable, ErrDraining.Error())
	case errors.Is(cause, stream.ErrRevoked), errors.Is(err, stream.ErrRevoked):
		return status.Error(codes.PermissionDenied, stream.ErrRevoked.Error())
	case errors.Is(cause, ErrExpired), errors.Is(err, ErrExpired):
		return status.Error(codes.Unauthenticated, ErrExpired.Error())
	case errors.Is(cause, ErrUnproven), errors.Is(err, ErrUnproven):
		return status.Error(codes.Unavailable, ErrUnproven.Error())
	case err == nil:
		return nil
	case errors.Is(err, identity.ErrUnauthenticated):
		return status.Error(codes.Unauthenticated, "authentication failed")
	case errors.Is(err, identity.ErrSuspended): // no stranger
		return status.Error(codes.PermissionDenied, suspendedText)
	case errors.Is(err, identity.ErrDenied):
		return status.Error(codes.PermissionDenied, "this SPIFFE ID is not registered for an agent of this hub")
	case errors.Is(err, ErrMismatch):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, ErrBusy):
		return status.Error(codes.Aborted, ErrBusy.Error()) // ResourceExhausted is gRPC's own for what is too long
	case errors.Is(err, stream.ErrIncompatible):
		return status.Error(codes.OutOfRange, err.Error()) // of the protocols we speak; it names two numbers
	case stream.ViolationOf(err) != "":
		return status.Error(codes.InvalidArgument, stream.TextOf(err)) // the kind, and which limit
	case errors.Is(err, stream.ErrProtocol):
		return status.Error(codes.InvalidArgument, stream.ErrProtocol.Error())
	}
	return status.Error(codes.Unavailable, "connection ended")
}

// KindOf is the one place where gRPC codes become kinds of errors. The text says what
// kind it is once, though a principal's often begins with it.
func KindOf(err error) error {
	said := status.Convert(err).Message()
	switch status.Code(err) {
	case codes.Unauthenticated:
		return kindOf(identity.ErrUnauthenticated, said)
	case codes.PermissionDenied:
		switch said {
		case suspendedText:
			return identity.ErrSuspended
		case stream.ErrRevoked.Error():
			return fmt.Errorf("%w: %w", identity.ErrDenied, stream.ErrRevoked)
		}
		return kindOf(identity.ErrDenied, said)
	case codes.FailedPrecondition:
		return kindOf(ErrMismatch, said)
	case codes.Aborted:
		return kindOf(ErrBusy, said)
	case codes.OutOfRange, codes.Unimplemented: // the latter of a server that has no such service
		return kindOf(stream.ErrIncompatible, said)
	case codes.InvalidArgument:
		return fmt.Errorf("%w of ours, says the principal: %s", stream.ErrProtocol, said)
	case codes.ResourceExhausted:
		return fmt.Errorf("%w: a frame is longer than its receiver takes: %s", stream.ErrProtocol, said)
	case codes.Unavailable:
		return kindOf(stream.ErrUnavailable, said)
	}
	return err
}

// kindOf is an error of a kind with what the principal said of it.
func kindOf(kind error, said string) error {
	if said == kind.Error() {
		return kind
	}
	return fmt.Errorf("%w: %s", kind, strings.TrimPrefix(said, kind.Error()+": "))
}
