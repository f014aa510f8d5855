package controller

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/identity"
)

// What keeps child applications from being shown is told, the gravest as the reason, and
// makes an Agent no less ready.
func TestStatusTellsWhatKeepsChildrenFromBeingShown(t *testing.T) {
	owner, err := identity.ParseAgentName("auto")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := func(s *Session) {
		s.BudgetKnown, s.Elsewhere = true, ChildrenElsewhere{Total: 12, Names: "team/a, team/b and more"}
	}
	inForce := Mapping{InForce: "destination"}
	for name, c := range map[string]struct {
		found  findings
		mode   v1alpha1.ChildApplications
		reason string
		says   []string
	}{
		"nothing":             {findings{mapping: inForce, children: Children{Namespace: "edge-1"}}, v1alpha1.ChildApplicationsMirror, "", nil},
		"not to be shown":     {findings{mapping: inForce, children: Children{Unwatched: true}, session: connected(elsewhere)}, v1alpha1.ChildApplicationsIgnore, "", nil},
		"by namespace":        {findings{mapping: Mapping{InForce: "namespace"}, children: Children{Unwatched: true}}, v1alpha1.ChildApplicationsMirror, "", nil},
		"taken by an agent":   {findings{mapping: inForce, children: Children{Taken: true, Owner: owner}, session: connected(elsewhere)}, v1alpha1.ChildApplicationsMirror, "ChildNamespaceTaken", []string{"namespace edge-1 of the hub, which is that of Agent auto"}},
		"taken by Argo CD":    {findings{mapping: inForce, children: Children{Taken: true}}, v1alpha1.ChildApplicationsMirror, "ChildNamespaceTaken", []string{"that of the hub's Argo CD"}},
		"elsewhere":           {findings{mapping: inForce, session: connected(elsewhere)}, v1alpha1.ChildApplicationsMirror, "ChildrenElsewhere", []string{"12 child applications are not shown", "are team/a, team/b and more: move them there, make them Applications of the hub, or set spec.childApplications to ignore"}},
		"not watched":         {findings{mapping: inForce, children: Children{Namespace: "edge-1", Unwatched: true}}, v1alpha1.ChildApplicationsMirror, "NotShownByArgoCD", []string{"does not name edge-1", "argocd-cmd-params-cm"}},
		"projects, elsewhere": {findings{mapping: inForce, children: Children{Namespace: "edge-1", Projects: []string{"shop", "web"}}, session: connected(elsewhere)}, v1alpha1.ChildApplicationsMirror, "NotShownByArgoCD", []string{"spec.sourceNamespaces of AppProject shop, web", "12 child applications"}},
	} {
		t.Run(name, func(t *testing.T) {
			agent := &v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: "edge-1", Generation: 3}}
			agent.Spec.Mode, agent.Spec.ChildApplications = v1alpha1.ModeManaged, c.mode
			agent.Status.Versions.Agent = "1.0" // it has connected before
			c.found.secret = secretPlan{ready: true}
			agent.Status = wantStatus(agent, c.found, noon)
			got := meta.FindStatusCondition(agent.Status.Conditions, v1alpha1.ConditionChildApplications)
			if (got == nil) != (c.reason == "") || got != nil && got.Reason != c.reason {
				t.Fatalf("condition = %+v, want %s", got, c.reason)
			}
			for _, says := range c.says {
				if !strings.Contains(got.Message, says) {
					t.Errorf("message %q lacks %q", got.Message, says)
				}
			}
			if !meta.IsStatusConditionTrue(agent.Status.Conditions, v1alpha1.ConditionReady) {
				t.Error("it is not ready")
			}
			// Those elsewhere stay told of one that is away, and nothing of one that shows them.
			agent.Status = wantStatus(agent, findings{mapping: inForce, secret: secretPlan{ready: true}}, noon)
			if stays := meta.FindStatusCondition(agent.Status.Conditions, v1alpha1.ConditionChildApplications) != nil; stays != (c.reason == "ChildrenElsewhere") {
				t.Errorf("while it is away the condition stays: %t", stays)
			}
			agent.Status = wantStatus(agent, findings{mapping: inForce, secret: secretPlan{ready: true}, session: connected(func(s *Session) { s.BudgetKnown = true })}, noon)
			if meta.FindStatusCondition(agent.Status.Conditions, v1alpha1.ConditionChildApplications) != nil {
				t.Error("the condition stays when its cause is gone")
			}
		})
	}
}
