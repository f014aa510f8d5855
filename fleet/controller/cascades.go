package controller

import (
	"slices"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// setCascades keeps what a session knows of Applications that are asked to go with their
// workloads. That what went is forgotten after a while is worth no write of its own: it
// is taken over when observedAt is renewed.
func setCascades(want *v1alpha1.AgentStatus, session Session, observed bool) {
	if !session.CascadesKnown {
		return
	}
	now := session.Cascades.DeepCopy()
	if now != nil {
		now.Held = cut(now.Held)
		now.Gone = now.Gone[max(0, len(now.Gone)-v1alpha1.MaxGone):]
		if len(now.Gone) == 0 && now.AcceptedUntil == nil && now.Held == "" {
			now = nil
		}
	}
	if observed || !forgets(want.Cascades, now) {
		want.Cascades = now
	}
}

// forgets reports whether all that now says less than shown is what went.
func forgets(shown, now *v1alpha1.AgentCascades) bool {
	var before, after v1alpha1.AgentCascades
	if shown != nil {
		before = *shown
	}
	if now != nil {
		after = *now
	}
	return before.Held == after.Held && before.AcceptedUntil.Equal(after.AcceptedUntil) &&
		!slices.ContainsFunc(after.Gone, func(g v1alpha1.GoneApplications) bool {
			return !slices.ContainsFunc(before.Gone, func(old v1alpha1.GoneApplications) bool {
				return old.At.Equal(&g.At) && old.WithWorkloads == g.WithWorkloads && old.Others == g.Others
			})
		})
}
