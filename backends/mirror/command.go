package mirror

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/argomesh/argomesh/stream"
)

// keptCommands is the number of command ids that a spoke remembers with each
// Application, so that a command that is sent again is not run again.
const keptCommands = 16

// The messages of the operationState that the principal invents while a command
// is on its way. The second is written before the command is first sent: from
// then on it may have run.
const (
	waitingMessage = "waiting for agent "
	sentMessage    = "sent to agent "
)

// unstartedPrefix marks a command among those that a spoke took as one that it
// never started, since its termination came first.
const unstartedPrefix = "!"

// neverStarted is the value of beforeInfo for a spoke that shows no operation.
const neverStarted = "never"

// failedMessage begins the message of the operationState in which a command ends
// that the spoke will never run.
const failedMessage = "not run by agent "

// info returns the value of an entry of an operation's info list; empty when
// there is none.
func info(operation map[string]any, name string) string {
	list, _ := operation["info"].([]any)
	for _, item := range list {
		if m, ok := item.(map[string]any); ok && m["name"] == name {
			return stringAt(m, "value")
		}
	}
	return ""
}

func addInfo(operation map[string]any, name, value string) {
	list, _ := operation["info"].([]any)
	operation["info"] = append(slices.Clone(list), map[string]any{"name": name, "value": value})
}

// commandID returns the id of an operation; empty when it was given none.
func commandID(operation map[string]any) string { return info(operation, commandInfo) }

// bornOnSpoke returns an operation that the hub shows since it was born on the
// spoke, as it is there; nil for every other one.
func bornOnSpoke(operation map[string]any) map[string]any {
	if info(operation, spokeInfo) == "" {
		return nil
	}
	born, _ := clone(operation).(map[string]any)
	list, _ := born["info"].([]any)
	list = slices.DeleteFunc(list, func(item any) bool {
		m, _ := item.(map[string]any)
		return m["name"] == spokeInfo
	})
	if born["info"] = list; len(list) == 0 {
		delete(born, "info")
	}
	return born
}

// operationOf returns the operation that the hub is asked for, with what we noted in it; nil
// when there is none. RollingSync writes it anew on each pass while it waits for its
// end, without our notes: beside an operationState of ours that has not ended it is the
// same command, of which the state holds them. They are not written back, since
// RollingSync would then write again, and nobody would come any further.
func operationOf(o object) map[string]any {
	operation, noted := o.child("operation"), o.child("status", "operationState", "operation")
	if operation == nil || commandID(operation) != "" || bornOnSpoke(operation) != nil ||
		commandID(noted) == "" || completed(o.child("status", "operationState")) {
		return operation
	}
	return noted
}

// sent reports whether the operation of a hub Application is free to be sent, or
// was sent already.
func sent(o object) bool {
	operation := operationOf(o)
	return commandID(operation) != "" && info(operation, afterInfo) != "" &&
		commandID(o.child("status", "operationState", "operation")) == commandID(operation)
}

// sentElsewhere is the agent to which the command of an Application was sent before
// the Application became this one's; empty when it was not.
func (r Rules) sentElsewhere(o object) string {
	to := info(operationOf(o), agentInfo)
	if !r.byDestination() || !sent(o) || to == r.Agent.String() {
		return ""
	}
	return to
}

// command is what the hub asks of an Application; nil when nothing.
func (r Rules) command(o object, asked Requests) map[string]any {
	data := map[string]any{}
	if r.sentElsewhere(o) == "" {
		if sent(o) {
			data["operation"] = operationOf(o)
		}
		if end := termination(o); end != (target{}) {
			data["terminate"] = end.encode()
		}
	}
	asked.ask(o, data)
	if len(data) == 0 {
		return nil
	}
	return data
}

// target names the operation that is to be terminated: one of the hub's by its
// command id, one that was born on the spoke by its start. The zero value names
// none.
type target struct{ command, startedAt string }

// termination is what somebody asked the hub to terminate on the spoke.
func termination(o object) target {
	state := o.child("status", "operationState")
	switch id := commandID(o.child("status", "operationState", "operation")); {
	case !terminating(state):
		return target{}
	case id == "":
		return target{startedAt: stringAt(state, "startedAt")}
	case sent(o):
		return target{command: id}
	}
	return target{} // of a command that waits the hub alone knows
}

func (t target) encode() map[string]any {
	if t.command != "" {
		return map[string]any{"command": t.command}
	}
	return map[string]any{"startedAt": t.startedAt}
}

func targetOf(data map[string]any) target {
	m, _ := data["terminate"].(map[string]any)
	return target{command: stringAt(m, "command"), startedAt: stringAt(m, "startedAt")}
}

// runs reports whether the target is the operation in progress on the spoke, and
// not yet terminating.
func (t target) runs(o object) bool {
	state := o.child("status", "operationState")
	if t == (target{}) || o.child("operation") == nil || state == nil || completed(state) || terminating(state) {
		return false
	}
	id := commandID(o.child("status", "operationState", "operation"))
	return id == t.command && (id != "" || stringAt(state, "startedAt") == t.startedAt)
}

// planCommand starts an operation that this spoke has not yet started, terminates
// one, and asks for what it was not yet asked for, in one write.
func (r Rules) planCommand(e stream.Event, current *object) ([]Write, *stream.Refusal) {
	if e.Verb == stream.Delete {
		return nil, nil
	}
	if current == nil || r.sourceUID(*current) != e.Version.SourceUID {
		return nil, &stream.Refusal{
			Kind: stream.RefusalUnavailable, Message: "the Application that the command is for is not on the spoke",
		}
	}
	data, refusal := contentOf(e, "the command")
	if refusal != nil {
		return nil, refusal
	}
	if refusal := r.Policy.command(data); refusal != nil {
		return nil, refusal
	}
	if asked, _ := data["hydrate"].(map[string]any); asked != nil && stringAt(asked, "id") != current.annotation(hydratedKey) {
		if refusal := r.admitted(*current); refusal != nil {
			return nil, refusal
		}
	}
	next := current.clone()
	takeRequests(next, data)
	end := targetOf(data)
	if operation, ok := data["operation"].(map[string]any); ok {
		refusal = r.take(next, operation, end)
	}
	if end.runs(next) {
		next.child("status", "operationState")["phase"] = "Terminating"
	}
	return strictly(update(*current, next)), refusal
}

// take starts an operation in o unless it was taken before, and says why it cannot.
// One that is to end before it began is taken but never starts.
func (r Rules) take(o object, operation map[string]any, end target) *stream.Refusal {
	id := commandID(operation)
	if id == "" {
		return invalid("the operation carries no command id")
	}
	ids := takenCommands(o)
	unstarted := slices.Contains(ids, unstartedPrefix+id)
	inProgress := commandID(o.child("operation")) == id
	switch {
	case unstarted:
	case inProgress && end.command == id && commandID(o.child("status", "operationState", "operation")) != id:
		return &stream.Refusal{
			Kind: stream.RefusalUnavailable, Message: "the operation that is to end has not begun on the spoke",
		}
	// The object itself tells as well, should somebody have removed our list.
	case inProgress, commandID(o.child("status", "operationState", "operation")) == id:
		return nil
	case slices.Contains(ids, id):
		// The hub does not know that it ended. As the last one that was taken it is told
		// to be overtaken.
		remember(o, append(slices.DeleteFunc(ids, func(other string) bool { return other == id }), id))
		return nil
	case r.remade(o, operation):
		return invalid("the Application was made anew on the spoke after the command was sent; " +
			"whether it ran before is not known, so it is not run again")
	case end.command == id:
		remember(o, append(ids, unstartedPrefix+id))
	case o.child("operation") != nil:
		return &stream.Refusal{
			Kind: stream.RefusalUnavailable, Message: "another operation is in progress on the spoke",
		}
	default:
		if refusal := r.fitOperation(operation); refusal != nil {
			return refusal
		}
		if refusal := r.admitted(o); refusal != nil {
			return refusal
		}
		if refusal := r.overrides(o, id, operation); refusal != nil {
			return refusal
		}
		o.fields["operation"] = operation
		delete(o.child("status"), "operationState")
		remember(o, append(ids, id))
		return nil
	}
	return invalid("terminated before it was started")
}

// admitted says why the policy, which may be narrower by now, does not admit an
// Application that is there, or its AppProject: it stays, and nothing is done for it.
func (r Rules) admitted(o object) *stream.Refusal {
	if r.Mode == stream.Autonomous {
		return nil // it is the owner's
	}
	if refusal := r.Policy.application(o.child("spec")); refusal != nil {
		return refusal
	}
	return r.mayName(o.child("spec"))
}

// remember keeps the last ids of the commands that were taken.
func remember(o object, ids []string) {
	o.setAnnotation(commandsKey, string(encode(ids[max(0, len(ids)-keptCommands):])))
}

// after is what a command that becomes free to be sent says of the Application on
// the spoke that it is for, so that another one of the same name does not run it
// again. o is the Application on the hub.
func (r Rules) after(o object) string {
	if r.Mode == stream.Autonomous {
		return r.sourceUID(o)
	}
	// The write is tested on the resourceVersion that it records.
	if r.HistoryID == "" {
		return o.meta("resourceVersion")
	}
	return o.meta("resourceVersion") + "@" + r.HistoryID
}

// remade reports whether the Application on the spoke may be younger than the
// first sending of the command. The command became free to be sent when the hub
// knew of the copy, so a copy made from a later state of the hub is another one.
// States of different histories have no order, but what was made before the
// present history is older than a command of it. What was made while the history
// was not known may be of the present one; a command that was sent then is of none
// that could be told.
func (r Rules) remade(o object, operation map[string]any) bool {
	if r.Mode == stream.Autonomous {
		return info(operation, afterInfo) != o.uid()
	}
	revision, history, _ := strings.Cut(info(operation, afterInfo), "@")
	after, err := strconv.ParseUint(revision, 10, 64)
	rec, _ := recordOf(o)
	switch {
	case err != nil, rec.History != history && (history == "" || history != r.HistoryID):
		return true
	case rec.History != history && rec.History != "":
		return false
	}
	return rec.Created > after
}

func takenCommands(o object) []string {
	var ids []string
	// A damaged list is an empty one: at worst a command that is still pending runs
	// again, which only someone who edits the annotation by hand can bring about.
	_ = json.Unmarshal([]byte(o.annotation(commandsKey)), &ids)
	return ids
}

// overtaken is the id of the last command that this spoke took, once nothing of it
// is left to be seen, since another operation ran after it; else empty.
func overtaken(o object) string {
	ids := takenCommands(o)
	if len(ids) == 0 {
		return ""
	}
	last := ids[len(ids)-1]
	if strings.HasPrefix(last, unstartedPrefix) ||
		commandID(o.child("operation")) == last || commandID(o.child("status", "operationState", "operation")) == last {
		return ""
	}
	return last
}

// status is what a spoke tells of an Application's status and operation.
func (r Rules) status(o object) map[string]any {
	data := statusForm(o, nil)
	operation, state := o.child("operation"), o.child("status", "operationState")
	// An operation that was written anew over a running one is that one: the
	// controller goes on with what operationState holds.
	anew := !completed(state) && commandID(o.child("status", "operationState", "operation")) != ""
	if operation != nil && commandID(operation) == "" && !anew {
		data["operation"] = operation
	}
	if id := overtaken(o); id != "" {
		data["overtaken"] = id
	}
	tellRequests(o, data)
	return data
}

// planStatus writes the spoke's status to the hub's object.
func (r Rules) planStatus(e stream.Event, current *object, asked Requests) ([]Write, *stream.Refusal) {
	if current == nil {
		return nil, nil // no object to show it on
	}
	next := current.clone()
	if e.Verb == stream.Delete {
		if r.sourceUID(*current) == "" || bornOnSpoke(next.child("operation")) == nil {
			return nil, nil // the last status stays to be seen
		}
		delete(next.fields, "operation")
		return []Write{{Op: Update, Raw: encode(next.fields)}}, nil
	}
	if r.sourceUID(*current) != e.Version.SourceUID || r.unsendable(*current) != "" {
		return nil, nil
	}
	data, refusal := contentOf(e, "the status")
	if refusal != nil {
		return nil, refusal
	}
	status, ok := data["status"].(map[string]any)
	if !ok {
		return nil, invalid("the event carries no status")
	}
	list := slices.DeleteFunc(conditions(status), isOwnCondition)
	for _, c := range conditions(current.child("status")) {
		if isOwnCondition(c) {
			list = append(list, c)
		}
	}
	setConditions(status, list)
	if state := r.showOperation(next, data); state != nil {
		status["operationState"] = state
	} else {
		delete(status, "operationState")
	}
	if len(status) > 0 || current.child("status") != nil {
		next.fields["status"] = status // else there is nothing to write, as on a copy that was just made
	}
	asked.endRequests(next, data)
	if thins(*current, next) {
		return nil, nil
	}
	return update(*current, next), nil
}

// showOperation brings the operation of a hub Application in line with what the
// spoke tells in data, and returns the operationState to be shown with it. While a
// command is pending its operationState stays until the spoke shows that command;
// that of a command which was never run stays until the spoke runs something
// later; and a termination stays until the spoke shows the end.
func (r Rules) showOperation(o object, data map[string]any) map[string]any {
	operation, ours := operationOf(o), o.child("status", "operationState")
	id := commandID(operation)
	told := object{fields: data}
	theirs, born := told.child("status", "operationState"), told.child("operation")
	theirID := commandID(told.child("status", "operationState", "operation"))
	switch {
	case operation == nil || bornOnSpoke(operation) != nil:
		delete(o.fields, "operation")
		if neverRan(ours) && isFromBefore(ours, theirs) {
			return ours
		}
		if born != nil {
			addInfo(born, spokeInfo, r.Agent.String())
			o.fields["operation"] = born
		}
		end := termination(o)
		if end.startedAt != "" && end.startedAt == stringAt(theirs, "startedAt") && theirID == "" && !completed(theirs) {
			return ours
		}
	case id != "" && data["overtaken"] == id:
		delete(o.fields, "operation") // it ended unseen, while the spoke was away
	case id == "" || theirID != id:
		return ours
	case completed(theirs) && startedByApplicationSet(operation) && !lookedAtSince(told):
		// RollingSync would take an end for none, and sync again, until it also sees
		// that the Application was reconciled; the controller does so right after.
		return ours
	case completed(theirs):
		delete(o.fields, "operation")
	case terminating(ours):
		return ours // a Running from before does not undo it
	}
	return theirs
}

// isFromBefore reports whether theirs, the state of an operation on the spoke, is
// from before ours, the end of a command that never ran. The clocks of the two
// sides are not compared: what the spoke shows first is taken for what it had
// shown, and noted in ours.
func isFromBefore(ours, theirs map[string]any) bool {
	operation, ok := ours["operation"].(map[string]any)
	if !ok {
		return false
	}
	if info(operation, beforeInfo) == "" {
		addInfo(operation, beforeInfo, startOf(theirs))
	}
	return info(operation, beforeInfo) == startOf(theirs)
}

// startOf is when an operation of the spoke started, as the spoke tells.
func startOf(state map[string]any) string {
	if started := stringAt(state, "startedAt"); started != "" {
		return started
	}
	return neverStarted
}

// startedByApplicationSet reports whether an operation is one of RollingSync.
func startedByApplicationSet(operation map[string]any) bool {
	by, _ := operation["initiatedBy"].(map[string]any)
	return stringAt(by, "username") == "applicationset-controller"
}

// lookedAtSince reports whether a spoke reconciled an Application after the end of
// its last operation. Both times are RFC 3339 in UTC.
func lookedAtSince(o object) bool {
	return stringAt(o.child("status"), "reconciledAt") >= stringAt(o.child("status", "operationState"), "finishedAt")
}

// neverRan reports whether state is the end of a command that the spoke refused.
func neverRan(state map[string]any) bool {
	return completed(state) && strings.HasPrefix(stringAt(state, "message"), failedMessage)
}

// terminating reports whether somebody asked for the end of an operation that has
// not ended.
func terminating(state map[string]any) bool { return stringAt(state, "phase") == "Terminating" }

// completed reports whether an operation has come to its end. Running with
// finishedAt is an operation that will be retried.
func completed(state map[string]any) bool {
	switch stringAt(state, "phase") {
	case "Succeeded", "Failed", "Error":
		return stringAt(state, "finishedAt") != ""
	}
	return false
}
