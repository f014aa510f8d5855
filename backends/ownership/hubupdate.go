package ownership

import (
	"slices"
	"strings"
	"time"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/stream"
)

// LinkState is what PlanHubUpdate knows beside the object.
type LinkState struct {
	Now time.Time
	// Present says that there is a connection, and that the spoke is known to hold
	// the Application.
	Present bool
	// Away is for how long there has been no connection, to any principal; zero while
	// there is one, or may be.
	Away time.Duration
	// Answers says that this process had the last connection, and so knows what the
	// spoke answered, and Agreed that the spoke is known to hold what the hub has.
	Answers, Agreed bool
	// Refusal is why the spoke did not take the object; nil when it did, or was
	// not asked.
	Refusal *stream.Refusal
	// Dropped are the paths that the spoke's API server does not know, of the
	// Application as it was taken there, and DroppedKnown says that it is known.
	Dropped      []string
	DroppedKnown bool
	// Failure is why the spoke will never run the command of this moment; nil when
	// it may.
	Failure *stream.Refusal
	// Barred is why the AppProject of the Application on the hub does not admit it; empty
	// when it does.
	Barred string
	// HistoryBroken is why a command that waits is not to be sent any more: the
	// history of hub and spoke in which it was given is not the one in which it
	// would run, so whether it ran before is not known. Empty while history goes on.
	HistoryBroken string
	// VerifiedFrom is the resourceVersion from which on states of the object are known to be
	// of the present history; zero while none is, so that no command is sent.
	VerifiedFrom uint64
	// Gone says that the spoke holds nothing any more of this object, whose
	// deletion it witnessed.
	Gone bool
	// Released says that the object was to leave its workloads, and that the spoke holds
	// nothing of it any more.
	Released bool
	// NewID returns a random id for a command.
	NewID func() string
}

// AwayTime is how long the hub shows an operation of a spoke that is away. While
// it does, argocd-server takes no other one.
const AwayTime = 30 * time.Second

// PlanHubUpdate returns the upkeep that an Application on the hub needs besides what
// events bring: ids and visible states of commands, the end of finalizers, and
// the condition that says why the spoke did not take a spec; and the mark of the
// hub on a mirror of an earlier release, and the form of its spec. It returns false when it needs none.
func (r Rules) PlanHubUpdate(current object.Object, s LinkState) ([]byte, bool) {
	if r.NamesNoHub(current) {
		next := current.Clone()
		next.SetAnnotation(object.HubKey, r.Hub)
		return object.Encode(next.Fields), true
	}
	if raw, needed := reform(r, current); needed {
		return raw, true
	}
	if r.IsChild(current) {
		return updateChild(r, current, s)
	}
	if r.Side == stream.Spoke {
		return updateBounds(r, current)
	}
	if current.Key.Kind != stream.Application || r.SourceUID(current) == "" {
		return nil, false
	}
	if nothingToUpdate(r, current, s) {
		return nil, false
	}
	next := current.Clone()
	ours := current.Label(object.IgnoreSyncKey) != "true" && r.Unsendable(current) == ""
	upkeep := func(o object.Object, s LinkState) bool { return reportConditions(r, o, s) }
	gone := s.Gone && !object.HasCondition(current, object.DeletionCondition) // what was told stays to be decided on
	if ours && current.Deleting() && (gone || s.Released || r.Mode == stream.Autonomous || !current.Cascades()) {
		upkeep = func(o object.Object, _ LinkState) bool { return o.DropFinalizers(object.IsArgoCD) }
	}
	changed := upkeep(next, s)
	if ours && (s.Barred == "" || current.Deleting()) {
		changed = announceCommand(r, next, s) || changed
	}
	if !changed {
		return nil, false
	}
	return object.Encode(next.Fields), true
}

// nothingToUpdate reports whether an Application has no operation to announce, no condition to
// report and no deletion to finish, as is nearly always so. PlanHubUpdate is called each time an
// object is looked at, and then makes no copy of it.
func nothingToUpdate(r Rules, o object.Object, s LinkState) bool {
	return o.Child("operation") == nil && !o.Deleting() && s.Refusal == nil && s.Barred == "" && len(s.Dropped) == 0 &&
		r.Unsendable(o) == "" &&
		!slices.ContainsFunc(object.Conditions(o.Child("status")), object.IsOwnCondition)
}

// announceCommand gives a new operation its id and shows where it is.
func announceCommand(r Rules, o object.Object, s LinkState) bool {
	operation := operations.Of(o)
	switch {
	case operation == nil:
		return false
	case operations.StartedOnSpoke(operation) != nil:
		if s.Away < AwayTime {
			return false
		}
		delete(o.Fields, "operation")
		return true
	}
	state := o.Child("status", "operationState")
	if operation["sync"] == nil && operations.CommandID(operation) == "" {
		// RollingSync patches what differs from what it last saw, which is the info that
		// we added. Where the operation has ended meanwhile, that is all there is.
		delete(o.Fields, "operation")
		return true
	}
	shown := operations.CommandID(o.Child("status", "operationState", "operation"))
	if id := operations.CommandID(operation); id == "" || shown != id {
		showCommand(r, o, operation, s)
		return true
	}
	if why := neverRuns(r, o, s); why != "" {
		state["phase"], state["message"] = "Error", operations.FailedMessage+r.Agent.String()+": "+why
		state["finishedAt"] = s.Now.UTC().Format(time.RFC3339)
		delete(o.Fields, "operation")
		return true
	}
	if operations.Sent(o) || !s.Present || s.VerifiedFrom == 0 || o.Revision() < s.VerifiedFrom {
		return false
	}
	operations.AddInfo(operation, object.AfterInfo, r.SentAt(o))
	if r.Divided() {
		operations.AddInfo(operation, object.AgentInfo, r.Agent.String())
	}
	state["operation"] = object.Clone(operation)
	state["message"] = operations.SentMessage + r.Agent.String()
	return true
}

// showCommand gives an operation its id, if it has none, and shows it as what waits, or was
// sent and of which someone removed the state.
func showCommand(r Rules, o object.Object, operation map[string]any, s LinkState) {
	if operations.CommandID(operation) == "" {
		operations.AddInfo(operation, object.CommandInfo, s.NewID())
	}
	message := operations.WaitingMessage
	if operations.Info(operation, object.AfterInfo) != "" {
		message = operations.SentMessage
	}
	started := s.Now.UTC().Format(time.RFC3339)
	if operations.StartedByApplicationSet(operation) {
		// RollingSync takes a later start for an operation that ran.
		started = o.Meta("creationTimestamp")
	}
	o.Ensure("status")["operationState"] = map[string]any{
		"operation": object.Clone(operation),
		"phase":     "Running",
		"message":   message + r.Agent.String(),
		"startedAt": started,
	}
}

// neverRuns says why a command will not run any more; empty while it may. No one but the hub
// knows of one that waits, so the hub alone ends it.
func neverRuns(r Rules, o object.Object, s LinkState) string {
	state, sent := o.Child("status", "operationState"), operations.Sent(o)
	switch {
	case !sent && operations.Terminating(state):
		return "terminated before it was sent"
	case !sent && o.Deleting():
		return "the Application is being deleted"
	case !sent && s.HistoryBroken != "":
		return s.HistoryBroken
	case operations.Completed(state):
		return ""
	case r.SentToOther(o) != "":
		return "it was sent to agent " + r.SentToOther(o) +
			", which had the Application then; whether it ran is not known, so it is not run again"
	case sent && s.Failure != nil:
		return s.Failure.Message
	}
	return ""
}

// reportConditions keeps the conditions that say why the spoke did not take the spec, what of it was left
// out, or that the workloads of what is gone there may not be. What the hub alone decides each principal may
// write; what the spoke answered only the one that it answered, and it goes when the spoke
// is known to have taken it.
func reportConditions(r Rules, o object.Object, s LinkState) bool {
	message := ""
	switch {
	case o.Label(object.IgnoreSyncKey) != "true" && r.Unsendable(o) != "":
		message = "not sent: " + r.Unsendable(o)
	case o.Label(object.IgnoreSyncKey) != "true" && s.Barred != "" && !o.Deleting():
		message = "not sent: " + s.Barred
	case s.Answers && s.Refusal != nil && s.Refusal.Kind == stream.RefusalNotCascaded:
		return object.SetCondition(o, object.DeletionCondition, undecided(r, o, *s.Refusal), s.Now)
	case s.Answers && s.Refusal != nil && !s.Refusal.Kind.Passing():
		message = answer(r, *s.Refusal)
	}
	changed := false
	if shown := object.ErrorShown(object.Conditions(o.Child("status"))); message != "" || s.Agreed || !isAnswer(r, shown) {
		changed = object.SetCondition(o, object.ErrorCondition, message, s.Now)
	}
	if !s.DroppedKnown {
		return changed
	}
	return object.SetCondition(o, object.WarningCondition, warning(r, s.Dropped), s.Now) || changed
}

// undecided says what became of an Application that did not go as it was meant to, and
// what people can do.
func undecided(r Rules, o object.Object, refusal stream.Refusal) string {
	return "agent " + r.Agent.String() + ": " + refusal.Message + ". Its workloads may still run: " +
		"agentctl agent keep-workloads " + r.Agent.String() + " " + o.Key.Name +
		" lets the Application go and leaves them; " +
		"to have them deleted, create the Application again after that, and delete it"
}

// warning says what was left out; empty for nothing.
func warning(r Rules, dropped []string) string {
	if len(dropped) == 0 {
		return ""
	}
	where := "agent " + r.Agent.String() + " applied it"
	if r.Mode == stream.Autonomous {
		where = "shown"
	}
	return where + " without what the API server there does not know, since its Argo CD is older: " +
		strings.Join(dropped, ", ")
}

// answer is the message of the condition that tells what the spoke answered.
func answer(r Rules, refusal stream.Refusal) string {
	if refusal.Kind == stream.RefusalContested { // it did, and someone undid it
		return "agent " + r.Agent.String() + ": " + refusal.Message
	}
	return "agent " + r.Agent.String() + " did not apply it: " + refusal.Message
}

// isAnswer reports whether a message is one of answer's.
func isAnswer(r Rules, message string) bool {
	rest, found := strings.CutPrefix(message, "agent "+r.Agent.String())
	return found && (strings.HasPrefix(rest, ": ") || strings.HasPrefix(rest, " did not apply it: "))
}

// ShowsAnswer reports whether an Application of the hub shows what the spoke answered.
func (r Rules) ShowsAnswer(o object.Object) bool {
	if r.Side != stream.Hub || o.Key.Kind != stream.Application {
		return false
	}
	return isAnswer(r, object.ErrorShown(object.Conditions(o.Child("status"))))
}
