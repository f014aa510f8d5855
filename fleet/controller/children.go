package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
)

// Reasons of condition ChildApplications, the gravest first.
const (
	reasonChildNamespaceTaken = "ChildNamespaceTaken"
	reasonNotShownByArgoCD    = "NotShownByArgoCD"
	reasonChildrenElsewhere   = "ChildrenElsewhere"
)

// children asks about those of an agent that are to be shown.
func (l *loop) children(ctx context.Context, agent *v1alpha1.Agent, name identity.AgentName) Children {
	if !fleet.ShowsChildren(agent) {
		return Children{}
	}
	return l.cfg.Children(ctx, name)
}

// setChildren says on an Agent what keeps child applications from being shown by
// destination, while there is such. Those elsewhere are told as of the last connection.
func setChildren(conditions *[]metav1.Condition, agent *v1alpha1.Agent, found findings, now time.Time) {
	if !fleet.ShowsChildren(agent) || found.mapping.InForce != "destination" {
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionChildApplications)
		return
	}
	reason, says := obstacle(agent.Name, found)
	if reason == "" && !found.session.BudgetKnown {
		if last := meta.FindStatusCondition(*conditions, v1alpha1.ConditionChildApplications); last != nil &&
			last.Reason == reasonChildrenElsewhere {
			return
		}
	}
	if reason == "" {
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionChildApplications)
		return
	}
	meta.SetStatusCondition(conditions, metav1.Condition{
		Type: v1alpha1.ConditionChildApplications, Status: metav1.ConditionTrue, Reason: reason,
		Message:            cut(strings.Join(says, "; ")),
		ObservedGeneration: agent.Generation, LastTransitionTime: seconds(now),
	})
}

// obstacle says what keeps child applications from being shown, and the reason of the
// gravest; no reason for nothing.
func obstacle(agent string, found findings) (reason string, says []string) {
	c, elsewhere := found.children, found.session.Elsewhere
	if c.Taken {
		whose := "of the hub's Argo CD"
		if !c.Owner.IsZero() {
			whose = "of Agent " + c.Owner.String()
		}
		return reasonChildNamespaceTaken,
			[]string{fmt.Sprintf("child applications are not shown: they would be in namespace %s of the hub, which is that %s; "+
				"register the agent under another name, or set spec.childApplications to ignore", agent, whose)}
	}
	if found.session.BudgetKnown && elsewhere.Total > 0 {
		reason = reasonChildrenElsewhere
		says = append(says,
			fmt.Sprintf("%d child applications are not shown: this hub maps by destination, and shows those of the namespace of the spoke's Argo CD alone, "+
				"since two of one name would write over each other; in other namespaces are %s: move them there, make them Applications of the hub, or set spec.childApplications to ignore",
				elsewhere.Total, elsewhere.Names))
	}
	if len(c.Projects) > 0 {
		reason = reasonNotShownByArgoCD
		says = append([]string{fmt.Sprintf("argocd-server shows no child applications of projects that do not admit namespace %s: add it to spec.sourceNamespaces of AppProject %s",
			c.Namespace, strings.Join(c.Projects, ", "))}, says...)
	}
	if c.Unwatched {
		reason = reasonNotShownByArgoCD
		says = append([]string{fmt.Sprintf("application.namespaces in ConfigMap argocd-cmd-params-cm of the hub does not name %s, where child applications are shown: "+
			"add it and restart argocd-server, unless a flag of argocd-server names it", c.Namespace)}, says...)
	}
	return reason, says
}
