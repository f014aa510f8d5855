package identity_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/identity"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

func TestAllowIDs(t *testing.T) {
	var (
		principal = spiffeid.RequireFromString("spiffe://hub.test/principal")
		standby   = spiffeid.RequireFromString("spiffe://hub.test/standby")
	)
	tests := map[string]struct {
		accepted []spiffeid.ID
		peer     spiffeid.ID
		want     error
	}{
		"the one accepted":               {[]spiffeid.ID{principal}, principal, nil},
		"the second of two":              {[]spiffeid.ID{principal, standby}, standby, nil},
		"same path, other trust domain":  {[]spiffeid.ID{principal}, spiffeid.RequireFromString("spiffe://evil.test/principal"), identity.ErrDenied},
		"a longer path":                  {[]spiffeid.ID{principal}, spiffeid.RequireFromString("spiffe://hub.test/principal/x"), identity.ErrDenied},
		"another case":                   {[]spiffeid.ID{principal}, spiffeid.RequireFromString("spiffe://hub.test/Principal"), identity.ErrDenied},
		"the trust domain itself":        {[]spiffeid.ID{principal}, spiffeid.RequireFromString("spiffe://hub.test"), identity.ErrDenied},
		"an empty list denies everybody": {nil, principal, identity.ErrDenied},
		"no identity":                    {[]spiffeid.ID{principal}, spiffeid.ID{}, identity.ErrUnauthenticated},
		"no identity, and none accepted": {nil, spiffeid.ID{}, identity.ErrUnauthenticated},
		"the zero id cannot be accepted": {[]spiffeid.ID{{}}, spiffeid.ID{}, identity.ErrUnauthenticated},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := identity.AllowIDs(tc.accepted...)(tc.peer)
			if !errors.Is(err, tc.want) {
				t.Fatalf("AllowIDs(%v)(%s) = %v, want %v", tc.accepted, tc.peer, err, tc.want)
			}
			if err == nil {
				return
			}
			if !strings.Contains(err.Error(), tc.peer.String()) {
				t.Errorf("error does not name the peer: %v", err)
			}
			for _, id := range tc.accepted {
				if !strings.Contains(err.Error(), id.String()) {
					t.Errorf("error does not name the accepted %s: %v", id, err)
				}
			}
		})
	}
}

func TestAllowIDsKeepsTheErrorShort(t *testing.T) {
	var ids []spiffeid.ID
	for i := range 1000 {
		ids = append(ids, spiffeid.RequireFromString(fmt.Sprintf("spiffe://hub.test/p%d", i)))
	}
	authorize := identity.AllowIDs(ids...)
	if err := authorize(ids[999]); err != nil {
		t.Errorf("the last of 1000 is refused: %v", err)
	}
	err := authorize(spiffeid.RequireFromString("spiffe://hub.test/other"))
	if err == nil || len(err.Error()) > 500 || !strings.Contains(err.Error(), "and 992 more") {
		t.Errorf("AllowIDs() = %v", err)
	}
}

func TestAllowIDsTakesNoHoldOfItsArguments(t *testing.T) {
	ids := []spiffeid.ID{spiffeid.RequireFromString("spiffe://hub.test/a")}
	authorize := identity.AllowIDs(ids...)
	other := spiffeid.RequireFromString("spiffe://hub.test/b")
	ids[0] = other
	if err := authorize(other); !errors.Is(err, identity.ErrDenied) {
		t.Errorf("a later change of the list is accepted: %v", err)
	}
}
