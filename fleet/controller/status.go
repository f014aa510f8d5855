package controller

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
)

const (
	// observedInterval is how far apart two values of observedAt are.
	observedInterval = time.Minute
	// observedRetry is how soon to look again when that time is over and the agent
	// was not heard of since.
	observedRetry = 5 * time.Second
	// detailInterval is how far apart two writes of the status are when only
	// counts, versions, expiry or parked objects changed.
	detailInterval = 10 * time.Second
	// connectionInterval is how far apart any two writes of the status are, so that
	// an agent whose connection flaps does not keep the API server busy.
	connectionInterval = time.Second
	// largeStatus is how many bytes a status may have that is written so often. One that
	// names many objects is written at detailInterval: each write is a revision of the whole
	// Agent in etcd, and all that a peer chooses in it is in it again.
	largeStatus = 16 << 10
)

// ourConditions are the condition types this package writes. Others stay with
// who wrote them.
var ourConditions = []string{
	v1alpha1.ConditionReady, v1alpha1.ConditionConnected, v1alpha1.ConditionClusterSecretReady,
	v1alpha1.ConditionClusterSecretConflict, v1alpha1.ConditionConflict, v1alpha1.ConditionDeletionsHeld,
	v1alpha1.ConditionCacheMismatch, v1alpha1.ConditionProjectNames, v1alpha1.ConditionOverBudget,
	v1alpha1.ConditionMappingIgnored, v1alpha1.ConditionChildApplications,
}

// wantStatus returns the status agent should have at now, by what it has and what
// was found. The result has our conditions only.
func wantStatus(agent *v1alpha1.Agent, found findings, now time.Time) v1alpha1.AgentStatus {
	want := *agent.Status.DeepCopy()
	want.ObservedGeneration = agent.Generation
	found.session.Refused = refusalOf(agent, found.session)
	want.ClusterProject = found.secret.project
	setConnection(&want, found.session, now)
	setDetails(&want, found.session)
	if found.session.Connected {
		want.History = fleet.NextHistory(want.History, found.session.History, found.session.ClusterUID,
			!want.ObservedAt.Equal(agent.Status.ObservedAt))
	}
	setHeld(&want, found.session, now)
	setCascades(&want, found.session, !want.ObservedAt.Equal(agent.Status.ObservedAt))
	setBudget(&want, found.session, !want.ObservedAt.Equal(agent.Status.ObservedAt))
	want.Conditions = slices.DeleteFunc(want.Conditions, func(c metav1.Condition) bool {
		return !slices.Contains(ourConditions, c.Type)
	})
	want.Summary = summary(agent, want, found.session)
	for _, c := range append(wantConditions(agent, want, found), heldCondition(agent.Name, want.DeletionsHeld)) {
		c.ObservedGeneration = agent.Generation
		c.LastTransitionTime = seconds(now)
		meta.SetStatusCondition(&want.Conditions, c)
	}
	setProjectNames(&want.Conditions, agent, found.projects, now)
	setMapping(&want.Conditions, agent, found.mapping, now)
	setChildren(&want.Conditions, agent, found, now)
	return want
}

func setConnection(want *v1alpha1.AgentStatus, session Session, now time.Time) {
	since := session.Since
	if since.IsZero() && (want.Connected != session.Connected || want.Since == nil) {
		since = now
	}
	if !since.IsZero() {
		want.Since = new(seconds(since))
	}
	want.Connected = session.Connected
	want.Replica = ""
	if session.Connected {
		want.Replica = session.Replica
	}
	seen := seconds(session.ObservedAt)
	if !session.ObservedAt.IsZero() && observedIsDue(want.ObservedAt, seen.Time, now) {
		want.ObservedAt = &seen
	}
}

// observedIsDue reports whether have, nil for none, gives way to seen. One that has yet
// to come was written by a clock that was ahead. It must not stand until then: it
// tells the age of all that is shown of the spoke, and tokens are handed out with it.
func observedIsDue(have *metav1.Time, seen, now time.Time) bool {
	return have == nil || seen.Sub(have.Time) >= observedInterval || have.Sub(now) >= observedInterval
}

func setDetails(want *v1alpha1.AgentStatus, session Session) {
	if session.AgentVersion != "" {
		want.Versions.Agent = session.AgentVersion
	}
	if session.KubernetesVersion != "" {
		want.Versions.Kubernetes = session.KubernetesVersion
	}
	if !session.SPIFFEID.IsZero() {
		want.SPIFFEID = session.SPIFFEID.String()
	}
	if !session.SVIDExpiry.IsZero() {
		want.SVIDExpiry = new(seconds(session.SVIDExpiry))
	}
	if !session.Connected {
		return // the last counts stay, and observedAt says how old they are
	}
	want.Counts = session.Counts
	want.Counts.Parked = max(session.Counts.Parked, int64(len(session.Parked)))
	want.Parked = oldestParked(session.Parked)
	want.Counts.Shortened = max(session.Counts.Shortened, int64(len(session.Shortened)))
	want.Shortened = firstShortened(session.Shortened)
}

// firstShortened returns the first of shortened by name, as many as a status may name.
func firstShortened(shortened []v1alpha1.ShortenedObject) []v1alpha1.ShortenedObject {
	out := slices.Clone(shortened)
	slices.SortFunc(out, func(a, b v1alpha1.ShortenedObject) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out[:min(len(out), v1alpha1.MaxShortened)]
}

// setBudget keeps what is left of the agent's limits. It changes all the time, and is worth no
// write of its own: it is taken over when observedAt is renewed.
func setBudget(want *v1alpha1.AgentStatus, session Session, observed bool) {
	if !session.BudgetKnown || !observed {
		return
	}
	want.Budget = session.Budget.DeepCopy()
	if want.Budget != nil {
		want.Budget.At = seconds(want.Budget.At.Time)
	}
}

// oldestParked returns the oldest of parked, as many as a status may name, in the
// form the API server accepts.
func oldestParked(parked []v1alpha1.ParkedObject) []v1alpha1.ParkedObject {
	out := slices.Clone(parked)
	slices.SortFunc(out, func(a, b v1alpha1.ParkedObject) int {
		return cmp.Or(
			a.Since.Compare(b.Since.Time),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
		)
	})
	out = out[:min(len(out), v1alpha1.MaxParked)]
	for i := range out {
		out[i].Since = seconds(out[i].Since.Time)
		out[i].Message = cut(out[i].Message)
	}
	return out
}

func wantConditions(agent *v1alpha1.Agent, want v1alpha1.AgentStatus, found findings) []metav1.Condition {
	conflict, reason := describeConflicts(agent.Name, found)
	conditions := []metav1.Condition{
		readyCondition(agent, want, found, conflict, reason),
		connectedCondition(agent, want, found.session),
		secretCondition(found.secret),
		problemCondition(v1alpha1.ConditionClusterSecretConflict, reasonSecretConflict, found.secret.conflict),
		problemCondition(v1alpha1.ConditionConflict, reason, conflict),
	}
	if found.session.CacheKnown { // else that of an earlier process stays
		mismatch := cut(found.session.CacheMismatch)
		conditions = append(conditions, problemCondition(v1alpha1.ConditionCacheMismatch, reasonCacheFormat, mismatch))
	}
	if found.session.BudgetKnown { // else that of an earlier connection stays
		var over OverBudget
		if found.session.OverBudget != nil {
			over = *found.session.OverBudget
		}
		conditions = append(conditions, problemCondition(v1alpha1.ConditionOverBudget, over.Reason, cut(over.Message)))
	}
	return conditions
}

// readyCondition says whether the registration is in force, and if not, the
// weightiest reason.
func readyCondition(agent *v1alpha1.Agent, want v1alpha1.AgentStatus, found findings, conflict,
	reason string) metav1.Condition {
	no := func(reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason,
			Message: message}
	}
	switch {
	case agent.DeletionTimestamp != nil:
		return no(reasonDeleting, "the Agent is being deleted and waits for "+found.waits)
	case agent.Spec.Suspended:
		return no(reasonSuspended, "spec.suspended is true")
	case conflict != "":
		return no(reason, conflict)
	case found.secret.conflict != "":
		return no(reasonSecretConflict, found.secret.conflict)
	case !found.secret.ready:
		return no(reasonSecretNotReady, found.secret.problem)
	case neverConnected(want):
		return no(reasonNeverConnected, neverText(agent))
	}
	return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: reasonAsExpected}
}

func secretCondition(secret secretPlan) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionClusterSecretReady, Status: metav1.ConditionTrue,
		Reason: reasonAsExpected}
	if !secret.ready {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reasonSecretNotReady, secret.problem
		if secret.conflict != "" {
			c.Reason, c.Message = reasonSecretConflict, secret.conflict
		}
	}
	return c
}

// problemCondition is true when there is a problem, described by message.
func problemCondition(kind, reason, message string) metav1.Condition {
	if message == "" {
		return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reasonAsExpected}
	}
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

// describeConflicts says what of the Agent of a name belongs to others, with what helps, and
// the weightier reason.
func describeConflicts(name string, found findings) (message, reason string) {
	var out []string
	for _, c := range found.conflicts {
		out = append(out, fmt.Sprintf("SPIFFE ID %s belongs to the older Agent %s", c.ID, c.Owner))
	}
	if len(out) > 0 {
		out[len(out)-1] += fmt.Sprintf(": give this Agent another, by agentctl agent set %s --spiffe-id ID, or delete the older one", name)
	}
	for _, c := range found.namespaces {
		out = append(out, c.String())
	}
	if reason = reasonSPIFFEIDConflict; len(found.conflicts) == 0 {
		reason = reasonMappingConflict
	}
	return strings.Join(out, "; "), reason
}

// decision says what to do about a status now.
type decision struct {
	write bool
	// requeueAfter is how soon to look again, zero for not before something changes.
	requeueAfter time.Duration
}

// decide compares the status an Agent has with the one it should have. The last
// write was at lastWrite, zero for never.
func decide(have, want v1alpha1.AgentStatus, connected bool, now, lastWrite time.Time) decision {
	gap := time.Duration(-1)
	switch {
	case !sameConnection(have, want):
		if gap = connectionInterval; isLarge(want) {
			gap = detailInterval
		}
	case !equality.Semantic.DeepEqual(ours(have), ours(want)):
		gap = detailInterval
		if !have.ObservedAt.Equal(want.ObservedAt) {
			gap = 0 // its own interval has passed
		}
	}
	if gap >= 0 {
		// A last write that has yet to come was by a clock that was ahead.
		if since := now.Sub(lastWrite); since >= 0 && since < gap {
			return decision{requeueAfter: gap - since}
		}
		have = want
	}
	d := decision{write: gap >= 0}
	if connected {
		d.requeueAfter = observedInterval
		if have.ObservedAt != nil {
			d.requeueAfter = min(max(have.ObservedAt.Add(observedInterval).Sub(now), observedRetry), observedInterval)
		}
	}
	return d
}

// isLarge reports whether a status has more than largeStatus bytes.
func isLarge(status v1alpha1.AgentStatus) bool {
	content, err := json.Marshal(status)
	return err != nil || len(content) > largeStatus
}

// sameConnection reports whether two statuses say the same about the connection
// and the registration, and about what must not be shown late: a new history, that the
// spoke keeps it, other deletions held, and the count of cascades that another process
// goes on with.
func sameConnection(a, b v1alpha1.AgentStatus) bool {
	return fleet.HistoryID(a.History) == fleet.HistoryID(b.History) &&
		fleet.IsStored(a.History) == fleet.IsStored(b.History) && heldID(a.DeletionsHeld) == heldID(b.DeletionsHeld) &&
		equality.Semantic.DeepEqual(a.Cascades, b.Cascades) &&
		a.Connected == b.Connected && a.Replica == b.Replica && a.Since.Equal(b.Since) &&
		a.ObservedGeneration == b.ObservedGeneration &&
		equality.Semantic.DeepEqual(ours(a).Conditions, ours(b).Conditions)
}

// ours returns s with our conditions only, in one order.
func ours(s v1alpha1.AgentStatus) v1alpha1.AgentStatus {
	var conditions []metav1.Condition
	for _, kind := range ourConditions {
		if c := meta.FindStatusCondition(s.Conditions, kind); c != nil {
			conditions = append(conditions, *c)
		}
	}
	s.Conditions = conditions
	return s
}
