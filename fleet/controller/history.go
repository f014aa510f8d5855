package controller

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// setHistory begins a new history, or adds a token to the present one, when the
// session says that it may. A token is added when observedAt is renewed, so once a
// minute, and the second one as soon as the spoke keeps the first: it tells that the
// spoke does. Nothing else changes a history.
//
// The random values are lost when the status is not written now: nobody else saw
// them, and the next pass makes others.
func setHistory(want *v1alpha1.AgentStatus, session Session, observed bool) {
	said := session.History
	switch {
	case !session.Connected:
	case said.Begin && said.Replaces == historyID(want.History) && session.ClusterUID != "":
		want.History = &v1alpha1.AgentHistory{
			ID: uuid.NewString(), Tokens: []string{uuid.NewString()}, ClusterUID: session.ClusterUID,
		}
	case said.Broken == "" && want.History != nil && said.Stored != "" && said.Stored == newestToken(want.History) &&
		(observed || !isKept(want.History)):
		tokens := append([]string{uuid.NewString()}, want.History.Tokens...)
		want.History.Tokens = tokens[:min(len(tokens), v1alpha1.MaxHistoryTokens)]
	}
}

// beginning is a session's wish for a new history. The same wish is fulfilled once
// by one controller: when the history that it made is gone, the hub was restored,
// and another would hide that.
type beginning struct {
	wished           bool
	since            time.Time
	replaces, broken string
	begins           int
}

// beginningOf is the zero value for a session without such a wish.
func beginningOf(s Session) beginning {
	if !s.History.Begin {
		return beginning{}
	}
	return beginning{wished: true, since: s.Since, replaces: s.History.Replaces, broken: s.History.Broken, begins: s.History.Begins}
}

// historyID is empty when there is no history.
func historyID(h *v1alpha1.AgentHistory) string {
	if h == nil {
		return ""
	}
	return h.ID
}

// isKept reports whether the spoke has said that it keeps a token of h, nil for no
// history.
func isKept(h *v1alpha1.AgentHistory) bool { return h != nil && len(h.Tokens) > 1 }

func newestToken(h *v1alpha1.AgentHistory) string {
	if len(h.Tokens) == 0 {
		return ""
	}
	return h.Tokens[0]
}

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
		return metav1.Condition{Type: v1alpha1.ConditionDeletionsHeld, Status: metav1.ConditionFalse, Reason: reasonAsExpected}
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
		without = fmt.Sprintf("; of %d the workloads would go, or stay with: agentctl agent keep-workloads %s", held.WithWorkloads, agent)
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionDeletionsHeld, Status: metav1.ConditionTrue, Reason: string(held.Reason),
		Message: fmt.Sprintf("%s%s; look at them and let them happen with: agentctl agent accept-deletions %s%s", deletions, why, agent, without),
	}
}
