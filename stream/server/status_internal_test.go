package server

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
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
		"configured otherwise":    {nil, fmt.Errorf("%w: registered as managed", errMismatch), codes.FailedPrecondition, "configuration mismatch: registered as managed"},
		"another protocol":        {nil, fmt.Errorf("%w: the agent speaks protocol 2", stream.ErrIncompatible), codes.OutOfRange, "incompatible protocol: the agent speaks protocol 2"},
		"a protocol violation":    {nil, fmt.Errorf("%w: %w", stream.ErrProtocol, secret), codes.InvalidArgument, "protocol violation"},
		"a kind of violation":     {nil, fmt.Errorf("%w: %w", stream.ViolationLimit.Err(), secret), codes.InvalidArgument, "protocol violation: limit"},
		"anything else":           {nil, secret, codes.Unavailable, "connection ended"},
		"draining":                {errDraining, secret, codes.Unavailable, "the principal is stopping"},
		"draining before hello":   {nil, errDraining, codes.Unavailable, "the principal is stopping"},
		"revoked":                 {stream.ErrRevoked, stream.ErrRevoked, codes.PermissionDenied, "the registry no longer admits the agent"},
		"revoked, seen by Serve":  {nil, fmt.Errorf("ended: %w", stream.ErrRevoked), codes.PermissionDenied, "the registry no longer admits the agent"},
		"revoked, ended by Serve": {stream.ErrRevoked, nil, codes.PermissionDenied, "the registry no longer admits the agent"},
		"expired":                 {errExpired, secret, codes.Unauthenticated, errExpired.Error()},
		"expired before hello":    {nil, errExpired, codes.Unauthenticated, errExpired.Error()},
	}
	for name, tt := range tests {
		ctx, end := context.WithCancelCause(context.Background())
		if tt.cause != nil {
			end(tt.cause)
		}
		err := statusOf(ctx, tt.err)
		end(nil)
		if got := status.Code(err); got != tt.code {
			t.Errorf("%s: code %s, want %s", name, got, tt.code)
		}
		if got := status.Convert(err).Message(); err != nil && got != tt.message {
			t.Errorf("%s: message %q, want %q", name, got, tt.message)
		}
	}
}
