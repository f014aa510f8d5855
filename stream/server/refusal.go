package server

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
)

// RefusalReason is why an agent that has proven who it is gets no connection.
type RefusalReason string

// The reasons of a Refusal.
const (
	// RefusedID: no Agent admits the SPIFFE ID now.
	RefusedID RefusalReason = "SPIFFE ID"
	// RefusedName and RefusedMode: the agent is configured otherwise than registered.
	RefusedName RefusalReason = "name"
	RefusedMode RefusalReason = "mode"
	// RefusedVersion: the agent speaks another protocol.
	RefusedVersion RefusalReason = "version"
	// RefusedProtocol: the agent's first message cannot be understood.
	RefusedProtocol RefusalReason = "protocol"
)

// Refusal is a connection that was refused to an agent which has proven who it is, by a
// reason that only a person, or another release, changes.
type Refusal struct {
	Peer identity.Peer
	// Agent is whose the SPIFFE ID is; zero with RefusedID.
	Agent  identity.AgentName
	Reason RefusalReason
	// Message says for people on the hub what is wrong, with a cure. It has nothing of the
	// agent's but its name and mode and the numbers of its protocols, and is empty with
	// RefusedID.
	Message string
}

// notAdmitted tells of a caller that the gate did not let in, where it is one of
// Refusal's.
func (s *Server) notAdmitted(caller call.Caller, err error) {
	if status.Code(err) == codes.PermissionDenied {
		s.cfg.Refused(Refusal{Peer: caller.Peer, Reason: RefusedID})
	}
}

// misconfiguredError is why a hello is not that of the agent which is registered.
type misconfiguredError struct {
	reason RefusalReason
	// agent is what the agent is told, and hub what is said on the hub.
	agent error
	hub   string
}

func (e *misconfiguredError) Error() string { return e.agent.Error() }

func (e *misconfiguredError) Unwrap() error { return e.agent }

// check returns a misconfiguredError, or nil.
func check(h stream.Hello, a stream.Agent) error {
	switch {
	case h.Agent != a.Name:
		return &misconfiguredError{
			RefusedName,
			fmt.Errorf("%w: the agent is configured as %q, but its SPIFFE ID is registered for another Agent", call.ErrMismatch,
				h.Agent),
			fmt.Sprintf("the agent that has this SPIFFE ID is configured with the name %q: set name to %q in the agent's configuration, or take the SPIFFE ID from this Agent to Agent %s",
				h.Agent, a.Name, h.Agent),
		}
	case h.Mode != a.Mode:
		return &misconfiguredError{
			RefusedMode,
			fmt.Errorf("%w: the agent is configured as %s, but registered as %s", call.ErrMismatch, h.Mode, a.Mode),
			fmt.Sprintf("the agent is configured as %s, and registered as %s: set mode to %s in the agent's configuration, or delete this Agent and create it again as %s",
				h.Mode, a.Mode, a.Mode, h.Mode),
		}
	}
	return nil
}

// refused tells of a caller whose hello was refused.
func (s *Server) refused(caller call.Caller, err error) {
	r := Refusal{Peer: caller.Peer, Agent: caller.Agent.Name}
	var misconfigured *misconfiguredError
	switch {
	case errors.As(err, &misconfigured):
		r.Reason, r.Message = misconfigured.reason, misconfigured.hub
	case errors.Is(err, stream.ErrIncompatible):
		r.Reason, r.Message = RefusedVersion, err.Error() // it names two numbers, and the cure
	case stream.ViolationOf(err) != "":
		r.Reason, r.Message = RefusedProtocol, "its first message is refused: "+stream.TextOf(err)+
			": see that the releases of principal and agent are at most one minor release apart"
	default:
		return // it said nothing
	}
	s.cfg.Refused(r)
}
