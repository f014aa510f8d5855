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
	problemStarting:    "waiting for the first answer of the workload api",
	problemAbsent:      "no workload api at the socket: start the spire agent or set identity.socket",
	problemNoListener:  "nothing listens on the workload api socket: start the spire agent or set identity.socket",
	problemForbidden:   "may not open the workload api socket: correct its mode or owner, or set identity.socket",
	problemUnreachable: "cannot reach the workload api: check the spire agent and identity.socket",
	problemNoAnswer:    "the workload api does not answer: check the spire agent and its log",
	problemNoIdentity:  "the workload api issues no identity to this process: register it with spire",
	problemNotWorkload: "the server on the socket is not a workload api: correct identity.socket",
	problemUnreadable:  "the workload api sent svids that cannot be read: check the spire agent's log",
	problemNoChoice:    "no svid could be chosen",
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
