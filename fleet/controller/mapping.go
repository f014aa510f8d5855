package controller

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// Mapping is by what a hub tells whose its Applications are: by namespace or destination.
type Mapping struct {
	// InForce is the hub's, and Asked what a person has set; empty for nothing.
	InForce, Asked string
}

// Reasons of condition MappingIgnored.
const (
	reasonSettingDiffers   = "SettingDiffers"
	reasonNamespacesUnread = "NamespacesUnread"
)

// setMapping says on an Agent what of the mapping someone has written and no one reads,
// while there is such.
func setMapping(conditions *[]metav1.Condition, agent *v1alpha1.Agent, m Mapping, now time.Time) {
	var says []string
	reason := ""
	if m.Asked != "" && m.Asked != m.InForce {
		reason = reasonSettingDiffers
		says = append(says, fmt.Sprintf("mapping.by of the principal is %s, and this hub maps by %s, which stays in force: "+
			"leave the setting out, or make it %s; agentctl hub set-mapping changes the mapping of the hub", m.Asked, m.InForce,
			m.InForce))
	}
	if m.InForce == "destination" && agent.Spec.Mode == v1alpha1.ModeManaged && agent.Spec.Mapping != nil &&
		len(agent.Spec.Mapping.Namespaces) > 0 {
		reason = reasonNamespacesUnread
		says = append(says,
			"spec.mapping.namespaces is not read: this hub maps by destination, so an Application is this agent's by its destination, "+
				"in namespaces that mapping.namespaces of the principal admits; remove it from the Agent")
	}
	if len(says) == 0 {
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionMappingIgnored)
		return
	}
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: v1alpha1.ConditionMappingIgnored, Status: metav1.ConditionTrue, Reason: reason,
		Message:            strings.Join(says, "; "),
		ObservedGeneration: agent.Generation, LastTransitionTime: metav1.NewTime(now),
	})
}
