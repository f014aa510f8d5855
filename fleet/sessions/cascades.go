package sessions

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/cascades"
)

// StateOf is what an Agent keeps of its cascades, and cascadesOf the other way round.
func StateOf(kept *v1alpha1.AgentCascades) cascades.State {
	if kept == nil {
		return cascades.State{}
	}
	s := cascades.State{Held: kept.Held}
	if kept.AcceptedUntil != nil {
		s.Accepted = kept.AcceptedUntil.Time
	}
	for _, g := range kept.Gone {
		s.Gone = append(s.Gone, cascades.GoneCount{At: g.At.Time, Asked: int(g.WithWorkloads), Others: int(g.Others)})
	}
	return s
}

func cascadesOf(s cascades.State) *v1alpha1.AgentCascades {
	kept := &v1alpha1.AgentCascades{Held: s.Held}
	if !s.Accepted.IsZero() {
		kept.AcceptedUntil = new(metav1.NewTime(s.Accepted))
	}
	for _, g := range s.Gone {
		kept.Gone = append(kept.Gone,
			v1alpha1.GoneApplications{At: metav1.NewTime(g.At), WithWorkloads: int64(g.Asked), Others: int64(g.Others)})
	}
	return kept
}
