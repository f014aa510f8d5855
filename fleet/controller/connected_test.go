package controller

import (
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// One word says what there is to do, the weightiest first.
func TestSummary(t *testing.T) {
	refused := Session{Refused: &Refused{UID: "u1", ID: spiffeid.RequireFromString("spiffe://a/1"), What: "mode", Message: "set it", Since: noon}}
	stranger := Session{Refused: &Refused{UID: "u1", ID: spiffeid.RequireFromString("spiffe://a/2"), What: RefusedSPIFFEID, Since: noon}}
	here := connected(nil)
	wasThere := func(a *v1alpha1.Agent) { a.Status.Versions.Agent = "v0.1.0" }
	holds := func(total int64) func(*v1alpha1.Agent) {
		return func(a *v1alpha1.Agent) {
			wasThere(a)
			a.Status.DeletionsHeld = &v1alpha1.DeletionsHeld{ID: "x", Total: total}
		}
	}
	held := connected(func(s *Session) { s.HeldUnknown = true }) // the status keeps what it shows
	for want, tt := range map[string][]struct {
		agent   func(*v1alpha1.Agent)
		session Session
	}{
		"Connected": {{nil, here}, {nil, connected(func(s *Session) { s.Refused = refused.Refused })}},
		"Away": {
			{wasThere, Session{}},
			{func(a *v1alpha1.Agent) { wasThere(a); a.Spec.Identity.SPIFFEIDs = []string{"spiffe://a/2"} }, refused},
			{func(a *v1alpha1.Agent) { wasThere(a); a.Spec.Identity.SPIFFEIDs = []string{"spiffe://a/2"} }, stranger}, // which it has by now
		},
		"Never connected":    {{nil, Session{}}, {func(a *v1alpha1.Agent) { a.UID = "u2" }, refused}}, // a refusal that was not this Agent's
		"Refused: mode":      {{nil, refused}, {wasThere, refused}, {holds(3), refused}},
		"Refused: SPIFFE ID": {{nil, stranger}, {wasThere, stranger}},
		"1 deletion held":    {{holds(1), held}},
		"5 deletions held":   {{holds(5), held}, {holds(5), Session{HeldUnknown: true}}},
		"Suspended":          {{func(a *v1alpha1.Agent) { a.Spec.Suspended = true }, refused}},
		"Deleting":           {{func(a *v1alpha1.Agent) { a.DeletionTimestamp, a.Spec.Suspended = at(0), true }, here}},
	} {
		for i, one := range tt {
			agent := &v1alpha1.Agent{}
			agent.UID, agent.Spec.Identity.SPIFFEIDs = "u1", []string{"spiffe://a/1"}
			if one.agent != nil {
				one.agent(agent)
			}
			if got := wantStatus(agent, findings{secret: secretPlan{ready: true}, session: one.session}, noon).Summary; got != want {
				t.Errorf("%d: Summary = %q, want %q", i, got, want)
			}
		}
	}
}
