package call_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
)

// The kinds of errors as the peer sees them: the code says what to do, and the
// text names nothing of ours.
func TestStatusOf(t *testing.T) {
	secret := errors.New("spiffe://hub.test/agent at 10.1.2.3 by /run/agent.sock")
	tests := map[string]struct {
		cause, err error
		code       codes.Code
		message    string
	}{
		"an ordered end":          {nil, nil, codes.OK, ""},
		"not authenticated":       {nil, fmt.Errorf("%w: %w", identity.ErrUnauthenticated, secret), codes.Unauthenticated, "authentication failed"},
		"not registered":          {nil, fmt.Errorf("%w: %w", identity.ErrDenied, secret), codes.PermissionDenied, "this SPIFFE ID is not registered for an agent of this hub"},
		"suspended":               {nil, fmt.Errorf("%w: %w", identity.ErrSuspended, secret), codes.PermissionDenied, "this agent is suspended on the hub"},
		"configured otherwise":    {nil, fmt.Errorf("%w: registered as managed", call.ErrMismatch), codes.FailedPrecondition, "configuration mismatch: registered as managed"},
		"another protocol":        {nil, fmt.Errorf("%w: the agent speaks protocol 2", stream.ErrIncompatible), codes.OutOfRange, "incompatible protocol: the agent speaks protocol 2"},
		"too many":                {nil, fmt.Errorf("%w: %w", call.ErrBusy, secret), codes.Aborted, call.ErrBusy.Error()},
		"a protocol violation":    {nil, fmt.Errorf("%w: %w", stream.ErrProtocol, secret), codes.InvalidArgument, "protocol violation"},
		"a kind of violation":     {nil, fmt.Errorf("%w: %w", stream.ViolationLimit.Err(), secret), codes.InvalidArgument, "protocol violation: limit"},
		"anything else":           {nil, secret, codes.Unavailable, "connection ended"},
		"draining":                {call.ErrDraining, secret, codes.Unavailable, "the principal is stopping"},
		"draining before hello":   {nil, call.ErrDraining, codes.Unavailable, "the principal is stopping"},
		"revoked":                 {stream.ErrRevoked, stream.ErrRevoked, codes.PermissionDenied, "the registry no longer admits the agent"},
		"revoked, seen by Serve":  {nil, fmt.Errorf("ended: %w", stream.ErrRevoked), codes.PermissionDenied, "the registry no longer admits the agent"},
		"revoked, ended by Serve": {stream.ErrRevoked, nil, codes.PermissionDenied, "the registry no longer admits the agent"},
		"expired":                 {call.ErrExpired, secret, codes.Unauthenticated, call.ErrExpired.Error()},
		"expired before hello":    {nil, call.ErrExpired, codes.Unauthenticated, call.ErrExpired.Error()},
	}
	for name, tt := range tests {
		ctx, end := context.WithCancelCause(context.Background())
		if tt.cause != nil {
			end(tt.cause)
		}
		err := call.StatusOf(ctx, tt.err)
		end(nil)
		if got := status.Code(err); got != tt.code {
			t.Errorf("%s: code %s, want %s", name, got, tt.code)
		}
		if got := status.Convert(err).Message(); err != nil && got != tt.message {
			t.Errorf("%s: message %q, want %q", name, got, tt.message)
		}
	}
}

// Of one that is suspended, or was a moment ago, the agent knows that it waits for no one
// on its side.
func TestKindOfWhatWillBeGranted(t *testing.T) {
	for _, kind := range []error{identity.ErrSuspended, stream.ErrRevoked} {
		got := call.KindOf(call.StatusOf(context.Background(), kind))
		if !errors.Is(got, kind) || !errors.Is(got, identity.ErrDenied) {
			t.Errorf("%v comes as %v", kind, got)
		}
	}
}

func TestKindOf(t *testing.T) {
	tests := map[codes.Code]error{
		codes.Unauthenticated:    identity.ErrUnauthenticated,
		codes.PermissionDenied:   identity.ErrDenied,
		codes.FailedPrecondition: call.ErrMismatch,
		codes.Aborted:            call.ErrBusy,
		codes.OutOfRange:         stream.ErrIncompatible,
		codes.Unimplemented:      stream.ErrIncompatible,
		codes.InvalidArgument:    stream.ErrProtocol,
		codes.ResourceExhausted:  stream.ErrProtocol,
		codes.Unavailable:        stream.ErrUnavailable,
	}
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		err := call.KindOf(fmt.Errorf("serve: %w", status.Error(code, "words of the principal")))
		if code == codes.OK {
			err = call.KindOf(nil)
		}
		for _, kind := range tests {
			if got, want := errors.Is(err, kind), errors.Is(tests[code], kind); got != want {
				t.Errorf("KindOf(%s) = %v; errors.Is(%v) = %t, want %t", code, err, kind, got, want)
			}
		}
	}
	if err := call.KindOf(call.ErrMismatch); !errors.Is(err, call.ErrMismatch) {
		t.Errorf("KindOf() of our own error = %v", err)
	}
}

// What StatusOf says of a kind is not said twice by the agent.
func TestKindIsSaidOnce(t *testing.T) {
	for _, err := range []error{
		fmt.Errorf("%w: the agent is configured as managed, but registered as autonomous", call.ErrMismatch),
		call.ErrBusy,
		fmt.Errorf("%w: 1, we speak 2", stream.ErrIncompatible),
		stream.ErrIncompatible,
	} {
		got := call.KindOf(call.StatusOf(t.Context(), err))
		if got.Error() != err.Error() {
			t.Errorf("KindOf(StatusOf(%q)) = %q", err, got)
		}
	}
	// A text that only begins with the same letters is kept as it is.
	if got := call.KindOf(status.Error(codes.FailedPrecondition, "configuration mismatched")); got.Error() != "configuration mismatch: configuration mismatched" {
		t.Errorf("KindOf() = %q", got)
	}
}
