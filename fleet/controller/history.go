package controller

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// setHeld shows what a connected agent's session holds. After a disconnect the
// last stays: the hold stands.
func setHeld(want *v1alpha1.AgentStatus, session Session, now time.Time) {
	if !session.Connected || session.HeldUnknown {
		return
	}
	if session.Held == nil {
		want.DeletionsHeld = nil
		return
	}
	held := session.Held.DeepCopy()
	held.Total = max(held.Total, int64(len(held.Objects)))
	held.Message = cut(held.Message)
	slices.SortFunc(held.Objects, func(a, b v1alpha1.HeldObject) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	held.Objects = held.Objects[:min(len(held.Objects), v1alpha1.MaxHeld)]
	held.Since = seconds(now)
	if shown := want.DeletionsHeld; heldID(shown) == held.ID {
		held.Since = shown.Since
	}
	want.DeletionsHeld = held
}

// heldID is empty when nothing is held.
func heldID(h *v1alpha1.DeletionsHeld) string {
	if h == nil {
		return ""
	}
	return h.ID
}

func heldCondition(agent string, held *v1alpha1.DeletionsHeld) metav1.Condition {
	if held == nil {
		return metav1.Condition{Type: v1alpha1.ConditionDeletionsHeld, Status: metav1.ConditionFalse,
			Reason: reasonAsExpected}
	}
	deletions := fmt.Sprintf("%d deletions are held", held.Total)
	if held.Total == 1 {
		deletions = "1 deletion is held"
	}
	why, without := "", ""
	if held.Message != "" {
		why = ": " + held.Message
	}
	if held.WithWorkloads > 0 {
		without = fmt.Sprintf("; of %d the workloads would go, or stay with: agentctl agent keep-workloads %s",
			held.WithWorkloads, agent)
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionDeletionsHeld, Status: metav1.ConditionTrue, Reason: string(held.Reason),
		Message: fmt.Sprintf("%s%s; look at them and let them happen with: agentctl agent accept-deletions %s%s", deletions,
			why, agent, without),
	}
}
