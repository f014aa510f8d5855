package fleet_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
)

func TestClaimLink(t *testing.T) {
	link := func(life, connection, process string, turn, epoch int64) *v1alpha1.AgentLink {
		return &v1alpha1.AgentLink{Replica: "r", Life: life, Connection: connection, Process: process, Turn: turn, Epoch: epoch}
	}
	for name, c := range map[string]struct {
		have, want, next *v1alpha1.AgentLink
	}{
		"nobody had it":                              {nil, link("a", "c1", "p", 1, 0), link("a", "c1", "p", 1, 1)},
		"the same connection has it":                 {link("a", "c1", "p", 1, 4), link("a", "c1", "p", 1, 0), link("a", "c1", "p", 1, 4)},
		"a newer connection to the same principal":   {link("a", "c1", "p", 1, 4), link("a", "c2", "p", 2, 0), link("a", "c2", "p", 2, 5)},
		"a newer connection to another principal":    {link("a", "c1", "p", 1, 4), link("b", "c2", "p", 2, 0), link("b", "c2", "p", 2, 5)},
		"an older connection that has not ended yet": {link("b", "c2", "p", 2, 5), link("a", "c1", "p", 1, 0), nil},
		"another process of the agent":               {link("b", "c2", "p", 2, 5), link("a", "c1", "q", 1, 0), link("a", "c1", "q", 1, 6)},
		"an agent that does not say":                 {link("b", "c2", "", 0, 5), link("a", "c1", "", 0, 0), link("a", "c1", "", 0, 6)},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.next, fleet.ClaimLink(c.have, *c.want)); diff != "" {
				t.Errorf("ClaimLink() (-want +got)\n%s", diff)
			}
		})
	}
}
