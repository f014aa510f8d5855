package main

import (
	"errors"
	"fmt"

	"github.com/argomesh/argomesh/cmd/internal/admin"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
	"github.com/argomesh/argomesh/stream/client"
)

// linkStatus is how this process stands to its principal.
type linkStatus struct {
	// agent is our name, for what a person is told to do.
	agent string
	// begun says that what the principal is told is known, and the Lease was asked for.
	begun bool
	// active says that this process has the Lease, so that it is who connects.
	active bool
	// standby says that another process was seen to have it.
	standby bool
	// failure is client.Client.Failure of an active one.
	failure error
}

// ready returns why this process cannot do its work, nil when it can. A spoke works without
// its hub, so one that is away is no reason, nor one that has suspended the agent; a hub
// that does not take this agent is, since nothing but a change mends it.
func (s linkStatus) ready() error {
	switch {
	case !s.begun:
		return errors.New("starting")
	case !s.active && !s.standby:
		return errors.New("starting: waits for the Lease of the agent")
	case s.active && errors.Is(s.failure, client.ErrNotTried):
		return s.failure
	case s.active && client.Refused(s.failure):
		return fmt.Errorf("refused by the hub: %w: %s", s.failure, s.cure())
	}
	return nil
}

// degraded returns what is wrong with one that is ready.
func (s linkStatus) degraded() error {
	switch {
	case !s.active:
		return errors.New(admin.Standby)
	case errors.Is(s.failure, stream.ErrRevoked):
		return errors.New("the hub has ended the connection, since it suspended, changed or deleted the Agent")
	case errors.Is(s.failure, identity.ErrSuspended):
		return errors.New("the hub has suspended this agent; the spoke goes on by itself")
	case errors.Is(s.failure, call.ErrImpostor):
		return fmt.Errorf("the server did not prove that it is the principal, and the spoke goes on by itself: %w; see principal.address and principal.spiffe_ids", s.failure)
	case s.failure != nil:
		return fmt.Errorf("the hub is away, and the spoke goes on by itself: %w", s.failure)
	}
	return nil
}

// cure says what to do about a refusal.
func (s linkStatus) cure() string {
	switch {
	case errors.Is(s.failure, identity.ErrDenied):
		return fmt.Sprintf("on the hub give the SPIFFE ID of this agent to its Agent: agentctl agent set %s --spiffe-id ID, or agentctl agent create if there is none; agentctl agent list --unknown shows the ID", s.agent)
	case errors.Is(s.failure, identity.ErrUnauthenticated):
		return "see agentctl identity doctor"
	}
	return "the Agent on the hub says what to set"
}
