package identity

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// MaxTokenBytes is the longest JWT-SVID that is taken from a peer, in bytes. Those of
// SPIRE have less than 1 KiB.
const MaxTokenBytes = 8 << 10

// Peer is who is at the other end of a connection, and for how long that is
// proven. It says nothing about what the peer may do.
type Peer struct {
	// ID is what the peer proved, exact, trust domain included.
	ID spiffeid.ID
	// NotAfter is when the proof ends: that of the leaf certificate, or the exp of the
	// token.
	NotAfter time.Time
	// Method is how it was proven, one of the Method constants.
	Method string
}

// Authorizer decides whether the owner of a proven SPIFFE ID is one of those
// expected. It returns nil, or an error that wraps [ErrDenied], or
// [ErrUnauthenticated] for the zero ID. It may be called from several
// goroutines at once.
type Authorizer func(spiffeid.ID) error

// maxListedIDs bounds how many accepted IDs an error names.
const maxListedIDs = 8

// AllowIDs accepts exactly the given SPIFFE IDs, trust domain included. An empty
// list denies everyone. The error names the ID presented and those accepted,
// so it is meant for our own log, not for the peer.
func AllowIDs(ids ...spiffeid.ID) Authorizer {
	accepted := make(map[spiffeid.ID]struct{}, len(ids))
	for _, id := range ids {
		accepted[id] = struct{}{}
	}
	delete(accepted, spiffeid.ID{})
	names := describe(ids)
	return func(id spiffeid.ID) error {
		if id.IsZero() {
			return fmt.Errorf("peer presented no spiffe id, accepted: %s: %w", names, ErrUnauthenticated)
		}
		if _, ok := accepted[id]; !ok {
			return fmt.Errorf("peer presented %s, accepted: %s: %w", id, names, ErrDenied)
		}
		return nil
	}
}

// describe lists ids for an error message, in order, once each, at most
// maxListedIDs of them.
func describe(ids []spiffeid.ID) string {
	names := make([]string, 0, len(ids))
	for _, id := range ids {
		if !id.IsZero() {
			names = append(names, id.String())
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return "none"
	}
	if more := len(names) - maxListedIDs; more > 0 {
		names = append(names[:maxListedIDs], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
