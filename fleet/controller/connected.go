package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// summary is the state of an agent in a word or two. What a person has to look after
// goes before what passes by itself.
func summary(agent *v1alpha1.Agent, want v1alpha1.AgentStatus, session Session) string {
	switch {
	case agent.DeletionTimestamp != nil:
		return "Deleting"
	case agent.Spec.Suspended:
		return "Suspended"
	case !want.Connected && session.Refused != nil:
		return "Refused: " + session.Refused.What
	case neverConnected(want):
		return "Never connected"
	case want.DeletionsHeld != nil && want.DeletionsHeld.Total == 1:
		return "1 deletion held"
	case want.DeletionsHeld != nil:
		return fmt.Sprintf("%d deletions held", want.DeletionsHeld.Total)
	case want.Connected:
		return "Connected"
	}
	return "Away"
}

// refusalOf returns why agents of this Agent are refused, nil when none is as far as
// the hub knows.
func refusalOf(agent *v1alpha1.Agent, session Session) *Refused {
	r := session.Refused
	if r == nil || r.UID != agent.UID {
		return nil
	}
	if has := slices.Contains(agent.Spec.Identity.SPIFFEIDs, r.ID.String()); has == (r.What == RefusedSPIFFEID) {
		return nil // it was so
	}
	return r
}

// neverConnected reports whether no agent has ever connected by this Agent: what one says
// first stays in the status.
func neverConnected(s v1alpha1.AgentStatus) bool {
	return !s.Connected && s.ObservedAt == nil && s.Versions.Agent == ""
}

// neverText says what is missing, and what to do.
func neverText(agent *v1alpha1.Agent) string {
	return cut(fmt.Sprintf("no agent has connected yet: run one with name %s, mode %s and SPIFFE ID %s; one that has another ID is shown by agentctl agent list --unknown",
		agent.Name, agent.Spec.Mode, strings.Join(agent.Spec.Identity.SPIFFEIDs, " or ")))
}

// awayCure is what to do about an agent that is away, of which the hub knows no more.
const awayCure = ": start the agent on its spoke; where it runs, its /readyz and agentctl identity doctor there say what keeps it from the hub; one that has another SPIFFE ID is shown by agentctl agent list --unknown"

// refusedText says why an agent is refused, and what to do.
func refusedText(agent *v1alpha1.Agent, r *Refused) string {
	if r.What != RefusedSPIFFEID {
		return r.Message
	}
	return fmt.Sprintf("no Agent has SPIFFE ID %s, and this one has %s: register the pods of the agent with that; or, if the other is this agent's, agentctl agent set %s --spiffe-id %s",
		r.ID, strings.Join(agent.Spec.Identity.SPIFFEIDs, " and "), agent.Name, r.ID)
}

// connectedCondition says whether the agent is connected, since when, and if not, why as
// far as the hub knows.
func connectedCondition(agent *v1alpha1.Agent, want v1alpha1.AgentStatus, session Session) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionConnected, Status: metav1.ConditionFalse}
	since := func(t time.Time) string { return " since " + t.UTC().Format(time.RFC3339) }
	switch {
	case want.Connected:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reasonConnected, "connected"+since(want.Since.Time)
	case agent.Spec.Suspended:
		c.Reason, c.Message = reasonSuspended, "spec.suspended is true"
	case session.Refused != nil:
		c.Reason = refusedFor(session.Refused.What)
		c.Message = cut("refused" + since(session.Refused.Since) + ": " + refusedText(agent, session.Refused))
	case neverConnected(want):
		c.Reason, c.Message = reasonNeverConnected, neverText(agent)
	default:
		c.Reason, c.Message = reasonNotConnected, "away"+since(want.Since.Time)+awayCure
	}
	return c
}

// refusedFor is the reason of a condition for Refused.What.
func refusedFor(what string) string {
	switch what {
	case "name":
		return reasonRefusedName
	case "mode":
		return reasonRefusedMode
	case "version":
		return reasonRefusedVersion
	case RefusedSPIFFEID:
		return reasonRefusedSPIFFEID
	}
	return reasonRefusedProtocol
}
