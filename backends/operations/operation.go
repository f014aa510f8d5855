// Package operations reads and writes what an Application says of its operations: those of the
// hub that are commands to a spoke, with their ids and ends, and what people request with
// annotations. Pure.
package operations

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/backends/object"
)

// MaxTakenCommands is the number of command ids that a spoke remembers with each
// Application, so that a command that is sent again is not run again.
const MaxTakenCommands = 16

// WaitingMessage and SentMessage begin the messages of the operationState that the
// principal writes while a command is on its way. The second is written before the command is first sent: from
// then on it may have run.
const (
	WaitingMessage = "waiting for agent "
	SentMessage    = "sent to agent "
)

// UnstartedPrefix marks a command among those that a spoke took as one that it
// never started, since its termination came first.
const UnstartedPrefix = "!"

// NeverStarted is the value of object.BeforeInfo for a spoke that shows no operation.
const NeverStarted = "never"

// FailedMessage begins the message of the operationState in which a command ends
// that the spoke will never run.
const FailedMessage = "not run by agent "

// Info returns the value of an entry of an operation's info list; empty when
// there is none.
func Info(operation map[string]any, name string) string {
	list, _ := operation["info"].([]any)
	for _, item := range list {
		if m, ok := item.(map[string]any); ok && m["name"] == name {
			return object.StringAt(m, "value")
		}
	}
	return ""
}

// AddInfo adds an entry to the info list of an operation.
func AddInfo(operation map[string]any, name, value string) {
	list, _ := operation["info"].([]any)
	operation["info"] = append(slices.Clone(list), map[string]any{"name": name, "value": value})
}

// CommandID returns the id of an operation; empty when it was given none.
func CommandID(operation map[string]any) string { return Info(operation, object.CommandInfo) }

// StartedOnSpoke returns an operation that the hub shows since it was born on the
// spoke, as it is there; nil for every other one.
func StartedOnSpoke(operation map[string]any) map[string]any {
	if Info(operation, object.SpokeInfo) == "" {
		return nil
	}
	born, _ := object.Clone(operation).(map[string]any)
	list, _ := born["info"].([]any)
	list = slices.DeleteFunc(list, func(item any) bool {
		m, _ := item.(map[string]any)
		return m["name"] == object.SpokeInfo
	})
	if born["info"] = list; len(list) == 0 {
		delete(born, "info")
	}
	return born
}

// Of returns the operation that the hub is asked for, with what we noted in it; nil
// when there is none. RollingSync writes it again on each pass while it waits for its
// end, without our notes: beside an operationState of ours that has not ended it is the
// same command, of which the state holds them. They are not written back, since
// RollingSync would then write again, and no one would come any further.
func Of(o object.Object) map[string]any {
	operation, noted := o.Child("operation"), o.Child("status", "operationState", "operation")
	if operation == nil || CommandID(operation) != "" || StartedOnSpoke(operation) != nil ||
		CommandID(noted) == "" || Completed(o.Child("status", "operationState")) {
		return operation
	}
	return noted
}

// Sent reports whether the operation of a hub Application is free to be sent, or
// was sent already.
func Sent(o object.Object) bool {
	operation := Of(o)
	return CommandID(operation) != "" && Info(operation, object.AfterInfo) != "" &&
		CommandID(o.Child("status", "operationState", "operation")) == CommandID(operation)
}

// Target names the operation that is to be terminated: one of the hub's by its
// command id, one that was born on the spoke by its start. The zero value names
// none.
type Target struct{ Command, StartedAt string }

// Termination is what someone asked the hub to terminate on the spoke.
func Termination(o object.Object) Target {
	state := o.Child("status", "operationState")
	switch id := CommandID(o.Child("status", "operationState", "operation")); {
	case !Terminating(state):
		return Target{}
	case id == "":
		return Target{StartedAt: object.StringAt(state, "startedAt")}
	case Sent(o):
		return Target{Command: id}
	}
	return Target{} // of a command that waits the hub alone knows
}

// Encode is the target as a command has it.
func (t Target) Encode() map[string]any {
	if t.Command != "" {
		return map[string]any{"command": t.Command}
	}
	return map[string]any{"startedAt": t.StartedAt}
}

// TargetOf reads what a command terminates.
func TargetOf(data map[string]any) Target {
	m, _ := data["terminate"].(map[string]any)
	return Target{Command: object.StringAt(m, "command"), StartedAt: object.StringAt(m, "startedAt")}
}

// Runs reports whether the target is the operation in progress on the spoke, and
// not yet terminating.
func (t Target) Runs(o object.Object) bool {
	state := o.Child("status", "operationState")
	if t == (Target{}) || o.Child("operation") == nil || state == nil || Completed(state) || Terminating(state) {
		return false
	}
	id := CommandID(o.Child("status", "operationState", "operation"))
	return id == t.Command && (id != "" || object.StringAt(state, "startedAt") == t.StartedAt)
}

// SetTakenCommands keeps the last ids of the commands that were taken.
func SetTakenCommands(o object.Object, ids []string) {
	o.SetAnnotation(object.CommandsKey, string(object.Encode(ids[max(0, len(ids)-MaxTakenCommands):])))
}

// TakenCommands returns the ids of the last commands that a spoke took, newest last.
func TakenCommands(o object.Object) []string {
	var ids []string
	// A damaged list is an empty one: at worst a command that is still pending runs
	// again, which only someone who edits the annotation by hand can bring about.
	_ = json.Unmarshal([]byte(o.Annotation(object.CommandsKey)), &ids)
	return ids
}

// Superseded is the id of the last command that this spoke took, once nothing of it
// is left to be seen, since another operation ran after it; else empty.
func Superseded(o object.Object) string {
	ids := TakenCommands(o)
	if len(ids) == 0 {
		return ""
	}
	last := ids[len(ids)-1]
	if strings.HasPrefix(last, UnstartedPrefix) ||
		CommandID(o.Child("operation")) == last || CommandID(o.Child("status", "operationState", "operation")) == last {
		return ""
	}
	return last
}

// IsFromBefore reports whether theirs, the state of an operation on the spoke, is
// from before ours, the end of a command that never ran. The clocks of the two
// sides are not compared: what the spoke shows first is taken for what it had
// shown, and noted in ours.
func IsFromBefore(ours, theirs map[string]any) bool {
	operation, ok := ours["operation"].(map[string]any)
	if !ok {
		return false
	}
	if Info(operation, object.BeforeInfo) == "" {
		AddInfo(operation, object.BeforeInfo, startOf(theirs))
	}
	return Info(operation, object.BeforeInfo) == startOf(theirs)
}

// startOf is when an operation of the spoke started, as the spoke tells.
func startOf(state map[string]any) string {
	if started := object.StringAt(state, "startedAt"); started != "" {
		return started
	}
	return NeverStarted
}

// StartedByApplicationSet reports whether an operation is one of RollingSync.
func StartedByApplicationSet(operation map[string]any) bool {
	by, _ := operation["initiatedBy"].(map[string]any)
	return object.StringAt(by, "username") == "applicationset-controller"
}

// ReconciledSince reports whether a spoke reconciled an Application after the end of
// its last operation. Both times are RFC 3339 in UTC.
func ReconciledSince(o object.Object) bool {
	return object.StringAt(o.Child("status"), "reconciledAt") >= object.StringAt(o.Child("status", "operationState"),
		"finishedAt")
}

// NeverRan reports whether state is the end of a command that the spoke refused.
func NeverRan(state map[string]any) bool {
	return Completed(state) && strings.HasPrefix(object.StringAt(state, "message"), FailedMessage)
}

// Terminating reports whether someone asked for the end of an operation that has
// not ended.
func Terminating(state map[string]any) bool { return object.StringAt(state, "phase") == "Terminating" }

// Completed reports whether an operation has come to its end. Running with
// finishedAt is an operation that will be retried.
func Completed(state map[string]any) bool {
	switch object.StringAt(state, "phase") {
	case "Succeeded", "Failed", "Error":
		return object.StringAt(state, "finishedAt") != ""
	}
	return false
}
