package agents

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

func TestDescribeHeld(t *testing.T) {
	agent := &v1alpha1.Agent{}
	agent.Name = "edge-1"
	agent.Status.DeletionsHeld = &v1alpha1.DeletionsHeld{
		ID: "hold-1", Since: metav1.Date(2026, 11, 21, 13, 0, 0, 0, time.FixedZone("CET", 3600)),
		Reason: v1alpha1.HoldTooMany, Message: "12 of 40 Applications would go", Total: 12,
		Objects: []v1alpha1.HeldObject{{Kind: "Application", Namespace: "argocd", Name: "a"}, {Kind: "Cluster", Name: "b"}},
	}
	want := `Agent edge-1 holds back 12 deletions since 2026-11-21T12:00:00Z (TooMany): 12 of 40 Applications would go
ID hold-1
  Application argocd/a
  Cluster b
  and 10 more
`
	if diff := cmp.Diff(want, describeHeld(agent)); diff != "" {
		t.Errorf("describeHeld() (-want +got):\n%s", diff)
	}
	agent.Status.DeletionsHeld.Total, agent.Status.DeletionsHeld.Message = 1, ""
	agent.Status.DeletionsHeld.Objects = agent.Status.DeletionsHeld.Objects[:1]
	want = "Agent edge-1 holds back 1 deletion since 2026-11-21T12:00:00Z (TooMany)\nID hold-1\n  Application argocd/a\n"
	if diff := cmp.Diff(want, describeHeld(agent)); diff != "" {
		t.Errorf("describeHeld() of one (-want +got):\n%s", diff)
	}
}
