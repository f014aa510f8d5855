package sim

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What was found comes back with its policy of synchronization, less the automated one.
func TestCheckReturnedPolicy(t *testing.T) {
	spec := func(policy m) m {
		s := m{"project": "default", "source": "mine"}
		if policy != nil {
			s["syncPolicy"] = policy
		}
		return s
	}
	options, automated := []any{"Prune=false"}, m{"prune": true}
	for name, c := range map[string]struct {
		found, now m
		want       []string
	}{
		"automated alone":                       {found: m{"automated": automated}},
		"automated comes back":                  {found: m{"automated": automated}, now: m{"automated": automated}, want: []string{"I4"}},
		"options come back":                     {found: m{"automated": automated, "syncOptions": options}, now: m{"syncOptions": options}},
		"options are lost":                      {found: m{"automated": automated, "syncOptions": options}, want: []string{"I4"}},
		"options without an automated one":      {found: m{"syncOptions": options}, now: m{"syncOptions": options}},
		"a policy that says nothing, as it was": {found: m{}, now: m{}},
	} {
		t.Run(name, func(t *testing.T) {
			log := newLogbook().raw("far", People, "t", false, theirs(m{adoptionAnnotation: adoptAlways}, spec(c.found))).
				raw("far", AgentSide, "t", false, theirs(adoptedFrom("t"), m{"project": "default", "source": "hub"})).
				raw("far", AgentSide, "t", false, theirs(nil, spec(c.now))).log
			if diff := cmp.Diff(c.want, found(log)); diff != "" {
				t.Errorf("Check() (-want +got):\n%s%s", diff, describe(Check(log)))
			}
		})
	}
}
