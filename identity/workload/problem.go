package workload

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// problem is what can be wrong with the Workload API; it decides the log
// message and the advice.
type problem string

const (
	problemStarting    problem = "starting"
	problemAbsent      problem = "absent"
	problemNoListener  problem = "no listener"
	problemForbidden   problem = "forbidden"
	problemUnreachable problem = "unreachable"
	problemNoAnswer    problem = "no answer"
	problemNoIdentity  problem = "no identity"
	problemNotWorkload problem = "not a workload api"
	problemUnreadable  problem = "unreadable"
	problemNoChoice    problem = "no choice"
)

// advice says in one sentence what is wrong and what helps.
var advice = map[problem]string{
	problemStarting:    "waiting for the first answer of the Workload API",
	problemAbsent:      "no Workload API at the socket: start the SPIRE agent or set identity.socket",
	problemNoListener:  "nothing listens on the Workload API socket: start the SPIRE agent or set identity.socket",
	problemForbidden:   "may not open the Workload API socket: correct its mode or owner, or set identity.socket",
	problemUnreachable: "cannot reach the Workload API: check the SPIRE agent and identity.socket",
	problemNoAnswer:    "the Workload API does not answer: check the SPIRE agent and its log",
	problemNoIdentity:  "the Workload API issues no identity to this process: register it with SPIRE",
	problemNotWorkload: "the server on the socket is not a Workload API: correct identity.socket",
	problemUnreadable:  "the Workload API sent SVIDs that cannot be read: check the SPIRE agent's log",
	problemNoChoice:    "no SVID could be chosen",
}

// describe makes an error of p that names the socket.
func (s *Source) describe(p problem, err error) error {
	if err == nil {
		return fmt.Errorf("%s (socket %s)", advice[p], s.socket)
	}
	return fmt.Errorf("%s (socket %s): %w", advice[p], s.socket, err)
}

// classify tells what err, an error of a watch, means; dialErr is why the last connection
// could not be made.
func classify(err, dialErr error) (problem, error) {
	st, ok := status.FromError(err)
	if !ok {
		return problemUnreadable, err
	}
	cause := errors.New(st.Message())
	switch st.Code() {
	case codes.PermissionDenied:
		return problemNoIdentity, cause
	case codes.InvalidArgument, codes.Unimplemented:
		return problemNotWorkload, cause
	}
	switch {
	case dialErr == nil:
		return problemNoAnswer, cause
	case errors.Is(dialErr, fs.ErrNotExist):
		return problemAbsent, nil
	case errors.Is(dialErr, syscall.ECONNREFUSED):
		return problemNoListener, nil
	case errors.Is(dialErr, fs.ErrPermission):
		return problemForbidden, nil
	}
	return problemUnreachable, dialErr
}
