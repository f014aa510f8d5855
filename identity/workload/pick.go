package workload

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// pick returns the SVID to use among those the Workload API offers: the one with
// the given ID and hint, as far as these are set. With neither set there must be
// only one, since the order of several means nothing.
func pick(svids []*x509svid.SVID, id spiffeid.ID, hint string) (*x509svid.SVID, error) {
	var chosen []*x509svid.SVID
	for _, svid := range svids {
		if (id.IsZero() || svid.ID == id) && (hint == "" || svid.Hint == hint) {
			chosen = append(chosen, svid)
		}
	}
	switch {
	case len(chosen) == 1:
		return chosen[0], nil
	case len(svids) == 0:
		return nil, errors.New("the Workload API offers no SVID")
	case len(chosen) == 0:
		return nil,
			fmt.Errorf("the Workload API offers no SVID with %s, it offers %s: register the identity or correct the setting",
				wanted(id, hint), offered(svids))
	case id.IsZero() && hint == "":
		return nil, fmt.Errorf("the Workload API offers %d SVIDs: choose one by identity.spiffe_id or identity.hint: %s",
			len(svids), offered(svids))
	}
	return nil,
		fmt.Errorf("the Workload API offers %d SVIDs with %s: set identity.spiffe_id and identity.hint so that one is left: %s",
			len(chosen), wanted(id, hint), offered(chosen))
}

// wanted names the settings that choose an SVID.
func wanted(id spiffeid.ID, hint string) string {
	var parts []string
	if !id.IsZero() {
		parts = append(parts, "identity.spiffe_id "+id.String())
	}
	if hint != "" {
		parts = append(parts, fmt.Sprintf("identity.hint %q", hint))
	}
	return strings.Join(parts, " and ")
}

// offered lists the IDs of svids, with their hints.
func offered(svids []*x509svid.SVID) string {
	names := make([]string, 0, len(svids))
	for _, svid := range svids {
		name := svid.ID.String()
		if svid.Hint != "" {
			name += fmt.Sprintf(" (hint %q)", svid.Hint)
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}
