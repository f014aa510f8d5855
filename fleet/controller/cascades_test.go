package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// What is counted is in the status, whether or not the agent is connected, and there is
// no write for what is only forgotten.
func TestCascadesFollowTheSession(t *testing.T) {
	gone := func(at ...time.Duration) (out []v1alpha1.GoneApplications) {
		for _, d := range at {
			out = append(out, v1alpha1.GoneApplications{At: metav1.NewTime(noon.Add(d)), WithWorkloads: 3, Others: 1})
		}
		return out
	}
	accepted := metav1.NewTime(noon)
	for name, test := range map[string]struct {
		have, said *v1alpha1.AgentCascades
		unknown    bool
		observed   bool // observedAt is renewed
		want       *v1alpha1.AgentCascades
	}{
		"nothing":            {said: &v1alpha1.AgentCascades{}},
		"some are gone":      {said: &v1alpha1.AgentCascades{Gone: gone(0)}, want: &v1alpha1.AgentCascades{Gone: gone(0)}},
		"held":               {said: &v1alpha1.AgentCascades{Held: "many"}, want: &v1alpha1.AgentCascades{Held: "many"}},
		"held no more":       {have: &v1alpha1.AgentCascades{Held: "many"}, said: &v1alpha1.AgentCascades{}},
		"accepted":           {have: &v1alpha1.AgentCascades{Gone: gone(0)}, said: &v1alpha1.AgentCascades{AcceptedUntil: &accepted}, want: &v1alpha1.AgentCascades{AcceptedUntil: &accepted}},
		"more are gone":      {have: &v1alpha1.AgentCascades{Gone: gone(-time.Minute)}, said: &v1alpha1.AgentCascades{Gone: gone(-time.Minute, 0)}, want: &v1alpha1.AgentCascades{Gone: gone(-time.Minute, 0)}},
		"one is forgotten":   {have: &v1alpha1.AgentCascades{Gone: gone(-time.Hour, 0)}, said: &v1alpha1.AgentCascades{Gone: gone(0)}, want: &v1alpha1.AgentCascades{Gone: gone(-time.Hour, 0)}},
		"a minute later":     {have: &v1alpha1.AgentCascades{Gone: gone(-time.Hour, 0)}, said: &v1alpha1.AgentCascades{Gone: gone(0)}, observed: true, want: &v1alpha1.AgentCascades{Gone: gone(0)}},
		"all are forgotten":  {have: &v1alpha1.AgentCascades{Gone: gone(-time.Hour)}, observed: true},
		"it is not known":    {have: &v1alpha1.AgentCascades{Gone: gone(-time.Hour)}, unknown: true, observed: true, want: &v1alpha1.AgentCascades{Gone: gone(-time.Hour)}},
		"a reason of a page": {said: &v1alpha1.AgentCascades{Held: strings.Repeat("x", 5000)}, want: &v1alpha1.AgentCascades{Held: strings.Repeat("x", 1024)}},
		"more than fit": {
			said: &v1alpha1.AgentCascades{Gone: gone(make([]time.Duration, 80)...)},
			want: &v1alpha1.AgentCascades{Gone: gone(make([]time.Duration, v1alpha1.MaxGone)...)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			status := v1alpha1.AgentStatus{Cascades: test.have}
			setCascades(&status, Session{CascadesKnown: !test.unknown, Cascades: test.said}, test.observed)
			if diff := cmp.Diff(test.want, status.Cascades); diff != "" {
				t.Errorf("cascades (-want +got):\n%s", diff)
			}
			if status.Cascades != nil && status.Cascades == test.said {
				t.Error("the status holds on to what the session points to")
			}
		})
	}
}

// Another process goes on with the count, so it is not late.
func TestCascadesAreNotLate(t *testing.T) {
	agent := &v1alpha1.Agent{}
	quiet := findings{secret: secretPlan{ready: true}, session: connected(func(s *Session) { s.CascadesKnown = true })}
	agent.Status = wantStatus(agent, quiet, noon)
	found, now := quiet, noon.Add(2*time.Second)
	found.session.Cascades = &v1alpha1.AgentCascades{Gone: []v1alpha1.GoneApplications{{At: metav1.NewTime(noon), WithWorkloads: 1}}}
	if !decide(agent.Status, wantStatus(agent, found, now), true, now, noon).write {
		t.Error("what went is not written 2 s after another change")
	}
}

// The condition names both ways out, where there are two.
func TestHeldConditionNamesTheWaysOut(t *testing.T) {
	const accept, keep = "agentctl agent accept-deletions edge-1", "agentctl agent keep-workloads edge-1"
	for with, want := range map[int64]bool{0: false, 2: true} {
		c := heldCondition("edge-1", &v1alpha1.DeletionsHeld{ID: "x", Reason: v1alpha1.HoldCascade, Total: 3, WithWorkloads: with})
		if !strings.Contains(c.Message, accept) || strings.Contains(c.Message, keep) != want || c.Reason != "CascadeHeld" {
			t.Errorf("of %d with workloads: %s: %s", with, c.Reason, c.Message)
		}
	}
}
