package controller

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// What someone has written of the mapping and no one reads is told on the Agent, as long as
// it is so, and makes it no less ready.
func TestStatusTellsWhatOfTheMappingIsIgnored(t *testing.T) {
	pairs := &v1alpha1.AgentMapping{Namespaces: []v1alpha1.MappedNamespace{{Hub: "apps"}}}
	for name, c := range map[string]struct {
		mapping Mapping
		mode    v1alpha1.AgentMode
		spec    *v1alpha1.AgentMapping
		reason  string
		says    string
	}{
		"nobody set anything":            {Mapping{InForce: "destination"}, v1alpha1.ModeManaged, nil, "", ""},
		"the setting is the hub's":       {Mapping{InForce: "namespace", Asked: "namespace"}, v1alpha1.ModeManaged, pairs, "", ""},
		"the setting differs":            {Mapping{InForce: "namespace", Asked: "destination"}, v1alpha1.ModeManaged, nil, "SettingDiffers", "this hub maps by namespace"},
		"namespaces nobody reads":        {Mapping{InForce: "destination"}, v1alpha1.ModeManaged, pairs, "NamespacesUnread", "spec.mapping.namespaces is not read"},
		"an autonomous agent reads them": {Mapping{InForce: "destination"}, v1alpha1.ModeAutonomous, pairs, "", ""},
		"both":                           {Mapping{InForce: "destination", Asked: "namespace"}, v1alpha1.ModeManaged, pairs, "NamespacesUnread", "mapping.by of the principal is namespace"},
		"a hub that does not say":        {Mapping{}, v1alpha1.ModeManaged, pairs, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			agent := &v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: "edge-1", Generation: 3}}
			agent.Spec.Mode, agent.Spec.Mapping = c.mode, c.spec
			agent.Status.Versions.Agent = "1.0" // it has connected before
			agent.Status = wantStatus(agent, findings{secret: secretPlan{ready: true}, mapping: c.mapping}, noon)
			got := meta.FindStatusCondition(agent.Status.Conditions, v1alpha1.ConditionMappingIgnored)
			if (got == nil) != (c.reason == "") || got != nil && (got.Reason != c.reason || !strings.Contains(got.Message, c.says)) {
				t.Errorf("condition = %+v, want %s: %s", got, c.reason, c.says)
			}
			if !meta.IsStatusConditionTrue(agent.Status.Conditions, v1alpha1.ConditionReady) {
				t.Error("it is not ready")
			}
			if agent.Status = wantStatus(agent, findings{secret: secretPlan{ready: true}}, noon); meta.FindStatusCondition(agent.Status.Conditions, v1alpha1.ConditionMappingIgnored) != nil {
				t.Error("the condition stays")
			}
		})
	}
}
