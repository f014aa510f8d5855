package workload

import (
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

func TestPick(t *testing.T) {
	a := &x509svid.SVID{ID: spiffeid.RequireFromString("spiffe://td.test/a")}
	b := &x509svid.SVID{ID: spiffeid.RequireFromString("spiffe://td.test/b"), Hint: "stream"}
	b2 := &x509svid.SVID{ID: b.ID, Hint: "web"}
	c := spiffeid.RequireFromString("spiffe://td.test/c")
	tests := map[string]struct {
		offer []*x509svid.SVID
		id    spiffeid.ID
		hint  string
		want  *x509svid.SVID
		says  []string // in the error
	}{
		"the only one":                   {offer: []*x509svid.SVID{a}, want: a},
		"the only one, by id":            {offer: []*x509svid.SVID{a}, id: a.ID, want: a},
		"by id":                          {offer: []*x509svid.SVID{a, b}, id: b.ID, want: b},
		"by hint":                        {offer: []*x509svid.SVID{a, b}, hint: "stream", want: b},
		"by both":                        {offer: []*x509svid.SVID{a, b, b2}, id: b.ID, hint: "web", want: b2},
		"none offered":                   {says: []string{"no SVID"}},
		"several and no choice":          {offer: []*x509svid.SVID{a, b}, says: []string{"2 SVIDs", "identity.spiffe_id", "identity.hint", a.ID.String(), b.ID.String(), `hint "stream"`}},
		"another id than the only one":   {offer: []*x509svid.SVID{a}, id: c, says: []string{"identity.spiffe_id " + c.String(), a.ID.String()}},
		"an unknown hint":                {offer: []*x509svid.SVID{a, b}, hint: "x", says: []string{`identity.hint "x"`, a.ID.String(), b.ID.String()}},
		"the id, but another hint":       {offer: []*x509svid.SVID{a, b}, id: a.ID, hint: "stream", says: []string{a.ID.String(), `"stream"`}},
		"one id under two hints":         {offer: []*x509svid.SVID{b, b2}, id: b.ID, says: []string{"2 SVIDs", "identity.hint"}},
		"the same path in another trust": {offer: []*x509svid.SVID{a}, id: spiffeid.RequireFromString("spiffe://other/a"), says: []string{"spiffe://other/a"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := pick(tc.offer, tc.id, tc.hint)
			if got != tc.want || (err == nil) != (tc.want != nil) {
				t.Fatalf("pick() = %v, %v", got, err)
			}
			for _, want := range tc.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error does not say %q: %v", want, err)
				}
			}
		})
	}
}
