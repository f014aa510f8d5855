// Package identity holds the words in which Argomesh speaks of who someone is:
// the name of an agent, the SPIFFE ID of a workload, an authenticated peer, and
// the decision whether that peer is one of those expected.
//
// It does no I/O. Certificates, bundles and TLS are the business of
// identity/workload; which SPIFFE IDs belong to which agent is decided by the
// registry in package fleet, by exact match. [AgentID] is only the name that
// agentctl proposes when no one chose another.
//
//	name, err := identity.ParseAgentName("edge-1")
//	id := identity.AgentID(spiffeid.RequireTrustDomainFromString("prod.example"), name)
//	// spiffe://prod.example/argomesh/agent/edge-1
//	authorize := identity.AllowIDs(id)
//	err = authorize(peer.ID) // nil, or wraps ErrDenied or ErrUnauthenticated
package identity

import (
	"errors"
	"fmt"
)

// The kinds of error of this package. Test for them with errors.Is.
var (
	// ErrInvalid says that a text is not the kind of name it should be.
	ErrInvalid = errors.New("invalid")
	// ErrUnauthenticated says that a peer proved no identity at all, or one
	// that no longer holds. Proving again, with a fresh SVID, can help.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrHeaderMissing says that a call by method header has no x-forwarded-client-cert at all:
	// no proxy set it, or one on the way took it out. It comes with ErrUnauthenticated, and says
	// nothing about who calls.
	ErrHeaderMissing = errors.New("the call does not carry it: have the proxy set it")
	// ErrDenied says that a peer proved who it is and is not welcome. Trying
	// again does not help until the accepted identities change.
	ErrDenied = errors.New("identity not accepted")
	// ErrSuspended says the same of one that will be welcome again when a person on the
	// other side says so. It wraps ErrDenied.
	ErrSuspended = fmt.Errorf("%w while it is suspended", ErrDenied)
)
