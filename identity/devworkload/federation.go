package devworkload

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/identity"
)

// Federation names another trust domain whose bundle is handed out, live: where it
// keeps its authorities.
type Federation struct {
	// TrustDomain is not the server's own, and named once. Required.
	TrustDomain spiffeid.TrustDomain
	// CADir is that of a server of TrustDomain. It may come later; until then there is
	// no bundle. Required.
	CADir string
}

// openFederation checks what is configured, and reads nothing yet.
func openFederation(own spiffeid.TrustDomain, with []Federation) ([]*store, error) {
	var stores []*store
	seen := map[spiffeid.TrustDomain]bool{own: true}
	for _, f := range with {
		if f.TrustDomain.IsZero() || f.CADir == "" || seen[f.TrustDomain] {
			return nil,
				fmt.Errorf("federation with %q in %q: a trust domain other than our own, once, and its ca directory are required: %w",
					f.TrustDomain, f.CADir, identity.ErrInvalid)
		}
		seen[f.TrustDomain] = true
		stores = append(stores, &store{trustDomain: f.TrustDomain, dir: f.CADir})
	}
	return stores, nil
}

// federatedBundles returns the bundles of the other trust domains at now, in their
// order, and when they change. With an error, what could not be read again is as it
// was. The caller holds mu.
func (s *Server) federatedBundles(now time.Time) (bundles []*spiffebundle.Bundle, next time.Time, err error) {
	all := maps.Clone(s.federated)
	var problems []error
	for _, other := range s.others {
		problems = append(problems, other.load())
		if len(other.current.authorities) == 0 {
			continue // it was never there
		}
		b, err := other.current.bundle(now)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		all[other.trustDomain] = b
		if change := other.current.nextChange(now); next.IsZero() || !change.IsZero() && change.Before(next) {
			next = change
		}
	}
	for _, td := range slices.SortedFunc(maps.Keys(all), spiffeid.TrustDomain.Compare) {
		bundles = append(bundles, all[td])
	}
	return bundles, next, errors.Join(problems...)
}

// ParseFederation reads a federation as it is written on a command line: a trust
// domain, an equals sign and a directory. The error wraps [identity.ErrInvalid].
func ParseFederation(text string) (Federation, error) {
	name, dir, _ := strings.Cut(text, "=")
	td, err := spiffeid.TrustDomainFromString(name)
	if err != nil || dir == "" {
		return Federation{}, fmt.Errorf("federation %q is not a trust domain, an equals sign and a directory: %w", text,
			identity.ErrInvalid)
	}
	return Federation{TrustDomain: td, CADir: dir}, nil
}
