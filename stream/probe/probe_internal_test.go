package probe

import (
	"errors"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// How a call without a frame ends says how far the principal lets us come. What is asked of
// real principals is in the tests of agentctl.
func TestJudge(t *testing.T) {
	principal := spiffeid.RequireFromString("spiffe://hub.test/principal")
	for name, tt := range map[string]struct {
		err      error
		peer     spiffeid.ID
		presents bool
		problem  Problem
		says     string
		ok, in   bool // handshake, registered
	}{
		"it misses the first frame":      {err: status.Error(codes.InvalidArgument, "x"), peer: principal, ok: true, in: true},
		"the same behind a proxy":        {err: status.Error(codes.InvalidArgument, "x"), ok: true, in: true},
		"it does not know us":            {err: status.Error(codes.PermissionDenied, "no\nagent"), peer: principal, problem: NotRegistered, says: "in: no agent", ok: true},
		"it does not take our proof":     {err: status.Error(codes.Unauthenticated, "no token"), problem: Unproven, says: "no token", ok: true},
		"it has no such service":         {err: status.Error(codes.Unimplemented, "unknown service"), problem: NoPrincipal, says: "is not a principal: unknown service"},
		"it is slow":                     {err: status.Error(codes.DeadlineExceeded, "x"), problem: Silent, says: "in time"},
		"it refuses our SVID":            {err: status.Error(codes.Unavailable, "reset"), peer: principal, presents: true, problem: Ended, says: "refused ours or went away: reset"},
		"it ends a call without an SVID": {err: status.Error(codes.Unavailable, "reset"), peer: principal, problem: Ended, says: "ended the connection: reset"},
		"nobody is there":                {err: errors.New("refused"), presents: true, problem: NoHandshake, says: "no handshake: refused"},
	} {
		r := Result{Peer: tt.peer}.ended(tt.err, tt.presents)
		if r.Problem != tt.problem || r.Handshake != tt.ok || r.Registered != tt.in || (r.Err == nil) != (tt.problem == None) {
			t.Errorf("%s: %+v", name, r)
		}
		if r.Err != nil && !strings.Contains(r.Err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", name, r.Err, tt.says)
		}
	}
}
