package mirror

import (
	"slices"
	"strings"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// Situation is what Tend knows beside the object.
type Situation struct {
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
	// Vouched is the resourceVersion from which on states of the object are known to be
	// of the present history; zero while none is, so that no command is sent.
	Vouched uint64
	// Gone says that the spoke holds nothing any more of this object, whose
	// deletion it witnessed.
	Gone bool
	// Released says that the object was to leave its workloads, and that the spoke holds
	// nothing of it any more.
	Released bool
	// NewID returns a random id for a command.
	NewID func() string
}

// awayTime is how long the hub shows an operation of a spoke that is away. While
// it does, argocd-server takes no other one.
const awayTime = 30 * time.Second

// Tend returns the upkeep that an Application on the hub needs besides what
// events bring: ids and visible states of commands, the end of finalizers, and
// the condition that says why the spoke did not take a spec; and the mark of the
// hub on a mirror of an earlier release, and the form of its spec. It returns false when it needs none.
func (r Rules) Tend(current object, s Situation) ([]byte, bool) {
	if r.unmarked(current) {
		next := current.clone()
		next.setAnnotation(hubKey, r.Hub)
		return encode(next.fields), true
	}
	if raw, needed := r.reform(current); needed {
		return raw, true
	}
	if r.isChild(current) {
		return r.tendChild(current, s)
	}
	if r.Side == stream.Spoke {
		return r.tendBounds(current)
	}
	if current.key.Kind != stream.Application || r.sourceUID(current) == "" {
		return nil, false
	}
	if r.untroubled(current, s) {
		return nil, false
	}
	next := current.clone()
	ours := current.label(ignoreSyncKey) != "true" && r.unsendable(current) == ""
	upkeep := r.report
	gone := s.Gone && !hasCondition(current, deletionCondition) // what was told stays to be decided on
	if ours && current.deleting() && (gone || s.Released || r.Mode == stream.Autonomous || !current.cascades()) {
		upkeep = func(o object, _ Situation) bool { return o.dropFinalizers(isArgoCD) }
	}
	changed := upkeep(next, s)
	if ours && (s.Barred == "" || current.deleting()) {
		changed = r.announce(next, s) || changed
	}
	if !changed {
		return nil, false
	}
	return encode(next.fields), true
}

// untroubled reports whether an Application is as nearly all are at nearly all times:
// there is nothing to announce, to report, or to let go. Tend is asked at every look
// at an object, and needs no copy of it then.
func (r Rules) untroubled(o object, s Situation) bool {
	return o.child("operation") == nil && !o.deleting() && s.Refusal == nil && s.Barred == "" && len(s.Dropped) == 0 && r.unsendable(o) == "" &&
		!slices.ContainsFunc(conditions(o.child("status")), isOwnCondition)
}

// announce gives a new operation its id and shows where it is.
func (r Rules) announce(o object, s Situation) bool {
	operation := operationOf(o)
	switch {
	case operation == nil:
		return false
	case bornOnSpoke(operation) != nil:
		if s.Away < awayTime {
			return false
		}
		delete(o.fields, "operation")
		return true
	}
	state := o.child("status", "operationState")
	if operation["sync"] == nil && commandID(operation) == "" {
		// RollingSync patches what differs from what it last saw, which is the info that
		// we added. Where the operation has ended meanwhile, that is all there is.
		delete(o.fields, "operation")
		return true
	}
	shown := commandID(o.child("status", "operationState", "operation"))
	id := commandID(operation)
	fail := func(reason string) bool {
		state["phase"], state["message"] = "Error", failedMessage+r.Agent.String()+": "+reason
		state["finishedAt"] = s.Now.UTC().Format(time.RFC3339)
		delete(o.fields, "operation")
		return true
	}
	switch {
	case id == "" || shown != id:
		if id == "" {
			id = s.NewID()
			addInfo(operation, commandInfo, id)
		}
		message := waitingMessage
		if info(operation, afterInfo) != "" {
			message = sentMessage // somebody removed the state of what was sent
		}
		started := s.Now.UTC().Format(time.RFC3339)
		if startedByApplicationSet(operation) {
			// RollingSync takes a later start for an operation that ran.
			started = o.meta("creationTimestamp")
		}
		o.ensure("status")["operationState"] = map[string]any{
			"operation": clone(operation),
			"phase":     "Running",
			"message":   message + r.Agent.String(),
			"startedAt": started,
		}
		return true
	// Nobody but the hub knows of a command that waits, so the hub alone ends it.
	case !sent(o) && terminating(state):
		return fail("terminated before it was sent")
	case !sent(o) && o.deleting():
		return fail("the Application is being deleted")
	case !sent(o) && s.HistoryBroken != "":
		return fail(s.HistoryBroken)
	case r.sentElsewhere(o) != "" && !completed(state):
		return fail("it was sent to agent " + r.sentElsewhere(o) + ", which had the Application then; whether it ran is not known, so it is not run again")
	case sent(o) && s.Failure != nil && !completed(state):
		return fail(s.Failure.Message)
	case !sent(o) && s.Present && s.Vouched != 0 && o.revision() >= s.Vouched:
		addInfo(operation, afterInfo, r.after(o))
		if r.byDestination() {
			addInfo(operation, agentInfo, r.Agent.String())
		}
		state["operation"] = clone(operation)
		state["message"] = sentMessage + r.Agent.String()
		return true
	}
	return false
}

// report keeps the conditions that say why the spoke did not take the spec, what of it was left
// out, or that the workloads of what is gone there may not be. What the hub alone decides each principal may
// write; what the spoke answered only the one that it answered, and it goes when the spoke
// is known to have taken it.
func (r Rules) report(o object, s Situation) bool {
	message := ""
	switch {
	case o.label(ignoreSyncKey) != "true" && r.unsendable(o) != "":
		message = "not sent: " + r.unsendable(o)
	case o.label(ignoreSyncKey) != "true" && s.Barred != "" && !o.deleting():
		message = "not sent: " + s.Barred
	case s.Answers && s.Refusal != nil && s.Refusal.Kind == stream.RefusalNotCascaded:
		return setCondition(o, deletionCondition, r.undecided(o, *s.Refusal), s.Now)
	case s.Answers && s.Refusal != nil && !s.Refusal.Kind.Passing():
		message = r.answer(*s.Refusal)
	}
	changed := false
	if shown := errorShown(conditions(o.child("status"))); message != "" || s.Agreed || !r.isAnswer(shown) {
		changed = setCondition(o, errorCondition, message, s.Now)
	}
	if !s.DroppedKnown {
		return changed
	}
	return setCondition(o, warningCondition, r.warning(s.Dropped), s.Now) || changed
}

// undecided says what became of an Application that did not go as it was meant to, and
// what people can do.
func (r Rules) undecided(o object, refusal stream.Refusal) string {
	return "agent " + r.Agent.String() + ": " + refusal.Message + ". Its workloads may still run: " +
		"agentctl agent keep-workloads " + r.Agent.String() + " " + o.key.Name + " lets the Application go and leaves them; " +
		"to have them deleted, create the Application again after that, and delete it"
}

// warning says what was left out; empty for nothing.
func (r Rules) warning(dropped []string) string {
	if len(dropped) == 0 {
		return ""
	}
	where := "agent " + r.Agent.String() + " applied it"
	if r.Mode == stream.Autonomous {
		where = "shown"
	}
	return where + " without what the API server there does not know, since its Argo CD is older: " + strings.Join(dropped, ", ")
}

// setCondition keeps a condition of an Application, or removes it when the message is
// empty. It reports whether that changed anything.
func setCondition(o object, kind, message string, now time.Time) bool {
	list := conditions(o.child("status"))
	i := slices.IndexFunc(list, func(c any) bool { return isCondition(c, kind) })
	switch {
	case message == "" && i < 0:
		return false
	case message == "":
		list = slices.Delete(list, i, i+1)
	case i >= 0:
		if m, _ := list[i].(map[string]any); stringAt(m, "message") == message {
			return false
		}
		list = slices.Delete(list, i, i+1)
		fallthrough
	default:
		list = append(list, map[string]any{
			"type": kind, "message": message,
			"lastTransitionTime": now.UTC().Format(time.RFC3339),
		})
	}
	setConditions(o.ensure("status"), list)
	return true
}

// answer is the message of the condition that tells what the spoke answered.
func (r Rules) answer(refusal stream.Refusal) string {
	if refusal.Kind == stream.RefusalContested { // it did, and somebody undid it
		return "agent " + r.Agent.String() + ": " + refusal.Message
	}
	return "agent " + r.Agent.String() + " did not apply it: " + refusal.Message
}

// isAnswer reports whether a message is one of answer's.
func (r Rules) isAnswer(message string) bool {
	rest, found := strings.CutPrefix(message, "agent "+r.Agent.String())
	return found && (strings.HasPrefix(rest, ": ") || strings.HasPrefix(rest, " did not apply it: "))
}

// errorShown is what the condition in a list says why a spoke did not take the spec.
func errorShown(list []any) string {
	for _, c := range list {
		if m, _ := c.(map[string]any); isCondition(c, errorCondition) {
			return stringAt(m, "message")
		}
	}
	return ""
}

// showsAnswer reports whether an Application of the hub shows what the spoke answered.
func (r Rules) showsAnswer(o object) bool {
	if r.Side != stream.Hub || o.key.Kind != stream.Application {
		return false
	}
	return r.isAnswer(errorShown(conditions(o.child("status"))))
}
