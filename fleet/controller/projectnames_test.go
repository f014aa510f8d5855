package controller

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// Both Agents say whose the names are that fit both, and neither is the less ready for it.
func TestStatusNamesSharedPrefixes(t *testing.T) {
	agent := &v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: "edge-1", Generation: 3}}
	agent.Spec.Mode = v1alpha1.ModeAutonomous
	found := findings{secret: secretPlan{ready: true}, session: connected(nil), projects: namedProjects{shorter: []string{"edge"}, longer: []string{"edge-1-b"}}}
	agent.Status = wantStatus(agent, found, noon)
	c := meta.FindStatusCondition(agent.Status.Conditions, v1alpha1.ConditionProjectNames)
	if c == nil || !strings.Contains(c.Message, "called b-…") || !strings.Contains(c.Message, "Agent edge-1-b") ||
		!strings.Contains(c.Message, "called edge-1-…") || !strings.Contains(c.Message, "not shown for Agent edge") {
		t.Errorf("condition = %+v", c)
	}
	if !meta.IsStatusConditionTrue(agent.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("conditions = %+v, want it ready", agent.Status.Conditions)
	}
	found.projects = namedProjects{}
	if c := meta.FindStatusCondition(wantStatus(agent, found, noon).Conditions, v1alpha1.ConditionProjectNames); c != nil {
		t.Errorf("condition = %+v after the other Agent is gone", c)
	}
}

func TestProjectNamesOf(t *testing.T) {
	of := func(mode v1alpha1.AgentMode) string {
		a := &v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: "edge-1--b"}}
		a.Spec.Mode = mode
		return strings.Join(projectNamesOf(a), " ")
	}
	if got := of(v1alpha1.ModeAutonomous); got != "edge-1--b -edge -edge-1" {
		t.Errorf("names = %q", got)
	}
	if got := of(v1alpha1.ModeManaged); got != "" {
		t.Errorf("names of a managed agent = %q", got)
	}
}
