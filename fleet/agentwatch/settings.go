package agentwatch

import (
	"cmp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/bounds"
	"github.com/argomesh/argomesh/backends/budget"
	"github.com/argomesh/argomesh/backends/presence"
	"github.com/argomesh/argomesh/fleet/continuity"
	"github.com/argomesh/argomesh/stream"
)

// affectsRegistry reports whether a change of an Agent may concern others than its link:
// who may connect, and what belongs to whom.
func affectsRegistry(before, after v1alpha1.Agent) bool {
	return before.UID != after.UID || before.Generation != after.Generation ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil)
}

// Settings is what a link is told of its Agent.
type Settings struct {
	Held     bool
	History  stream.History
	Accepted string
	Link     presence.LinkState
	Limits   budget.Limits
	Bounds   bounds.Bounds
	Left     budget.Levels
}

// SettingsOf is what an Agent says to its link. Its history moves on every minute.
func SettingsOf(a v1alpha1.Agent) Settings {
	return Settings{
		Held: !clusterSecretReady(a), History: continuity.HistoryOf(a.Status.History, 0),
		Accepted: a.Annotations[v1alpha1.AcceptDeletionsAnnotation],
		Link:     linkStateOf(a.Status), Limits: LimitsOf(a.Spec.Limits), Bounds: BoundsOf(a.Spec.Limits),
		Left: LevelsOf(a.Status.Budget),
	}
}

// Shows is what of an Agent's status is shown elsewhere: as the state of its cluster,
// and by its Applications.
type Shows struct {
	connected bool
	since     time.Time
	Held      int64
	Reason    v1alpha1.HoldReason
	Parked    int64
	Refused   string // why an agent was refused, with a cure; empty when none was
}

// refusedPrefix begins the reasons of condition Connected for an agent that is refused.
const refusedPrefix = "Refused"

// ShownBy is what the status of an Agent shows elsewhere.
func ShownBy(a v1alpha1.Agent) Shows {
	shows := Shows{connected: a.Status.Connected, Parked: a.Status.Counts.Parked}
	if since := a.Status.Since; since != nil {
		shows.since = since.UTC()
	}
	if held := a.Status.DeletionsHeld; held != nil {
		shows.Held, shows.Reason = held.Total, held.Reason
	}
	c := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionConnected)
	if c != nil && strings.HasPrefix(c.Reason, refusedPrefix) {
		shows.Refused = c.Message
	}
	return shows
}

// linkStateOf is what a status says of the agent's link, whichever principal has it.
func linkStateOf(s v1alpha1.AgentStatus) presence.LinkState {
	var state presence.LinkState
	if s.Link != nil {
		state.Epoch = s.Link.Epoch
	}
	if s.ObservedAt != nil {
		state.ObservedAt = s.ObservedAt.UTC()
	}
	return state
}

// clusterSecretReady says whether Argo CD knows the agent's cluster, and by no
// other Secret than ours. Before it does, nothing is sent, so that no hub
// controller takes an Application of the agent for its own.
func clusterSecretReady(a v1alpha1.Agent) bool {
	return meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionClusterSecretReady) &&
		!meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionClusterSecretConflict)
}

// LimitsOf are those of an Agent, the defaults where it says nothing.
func LimitsOf(l *v1alpha1.AgentLimits) budget.Limits {
	limits := budget.DefaultLimits()
	if l != nil {
		limits.Writes.Rate, limits.Writes.Burst = cmp.Or(l.WritesPerSecond, limits.Writes.Rate),
			cmp.Or(l.WritesBurst, limits.Writes.Burst)
		limits.Bytes.Rate, limits.Bytes.Burst = cmp.Or(l.BytesPerSecond, limits.Bytes.Rate),
			cmp.Or(l.BytesBurst, limits.Bytes.Burst)
	}
	return limits
}

// LevelsOf is what a status says, the zero value for nothing.
func LevelsOf(b *v1alpha1.AgentBudget) budget.Levels {
	if b == nil {
		return budget.Levels{}
	}
	return budget.Levels{Writes: b.Writes, Bytes: b.Bytes, At: b.At.UTC()}
}

// BoundsOf are those of an Agent, the defaults where it says nothing.
func BoundsOf(l *v1alpha1.AgentLimits) bounds.Bounds {
	b := bounds.Default()
	if l != nil {
		b.Applications, b.AppProjects = cmp.Or(int(l.Applications), b.Applications), cmp.Or(int(l.AppProjects), b.AppProjects)
		b.ApplicationBytes, b.AppProjectBytes = cmp.Or(int(l.ApplicationBytes), b.ApplicationBytes),
			cmp.Or(int(l.AppProjectBytes), b.AppProjectBytes)
		b.TotalBytes = cmp.Or(l.TotalBytes, b.TotalBytes)
	}
	return b
}
