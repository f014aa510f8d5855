package mirror

import (
	"bytes"
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

// sent reports whether the operation of a hub Application is free to be sent, or
// was sent already.
func sent(o object) bool {
	operation := o.child("operation")
	return commandID(operation) != "" && info(operation, afterInfo) != "" &&
		commandID(o.child("status", "operationState", "operation")) == commandID(operation)
}

// command is what the hub asks of an Application; nil when nothing.
func (r Rules) command(o object, refresh string) map[string]any {
	data := map[string]any{}
	if sent(o) {
		data["operation"] = o.fields["operation"]
	}
	if kind := o.annotation(refreshKey); kind != "" && refresh != "" {
		data["refresh"] = map[string]any{"type": kind, "id": refresh}
	}
	if len(data) == 0 {
		return nil
	}
	return data
}

// planCommand starts an operation that this spoke has not yet started, and asks
// for a refresh it was not yet asked for, in one write.
func (r Rules) planCommand(e stream.Event, current *object) ([]Write, *stream.Refusal) {
	if e.Verb == stream.Delete {
		return nil, nil
	}
	if current == nil || r.sourceUID(*current) != e.Version.SourceUID {
		return nil, &stream.Refusal{
			Kind: stream.RefusalUnavailable, Message: "the Application that the command is for is not on the spoke",
		}
	}
	data, err := decode(e.Data)
	if err != nil {
		return nil, invalid("the command is not a JSON object")
	}
	next := current.clone()
	changed := false
	if refresh, ok := data["refresh"].(map[string]any); ok && stringAt(refresh, "id") != current.annotation(refreshedKey) {
		next.setAnnotation(refreshKey, stringAt(refresh, "type"))
		next.setAnnotation(refreshedKey, stringAt(refresh, "id"))
		changed = true
	}
	if operation, ok := data["operation"].(map[string]any); ok {
		id := commandID(operation)
		taken := takenCommands(*current)
		if id == "" {
			return nil, invalid("the operation carries no command id")
		}
		if !slices.Contains(taken, id) {
			if r.remade(*current, operation) {
				return nil, invalid("the Application was made anew on the spoke after the command was sent; " +
					"whether it ran before is not known, so it is not run again")
			}
			if current.child("operation") != nil {
				return nil, &stream.Refusal{
					Kind: stream.RefusalUnavailable, Message: "another operation is in progress on the spoke",
				}
			}
			next.fields["operation"] = operation
			delete(next.child("status"), "operationState")
			taken = append(taken, id)
			next.setAnnotation(commandsKey, string(encode(taken[max(0, len(taken)-keptCommands):])))
			changed = true
		}
	}
	if !changed {
		return nil, nil
	}
	return []Write{{Op: Update, Raw: encode(next.fields)}}, nil
}

// remade reports whether the copy on the spoke may be younger than the first
// sending of the command. The command became free to be sent when the hub knew
// of the copy, so a copy made from a later state of the hub is another one.
func (r Rules) remade(o object, operation map[string]any) bool {
	if r.Mode == stream.Autonomous {
		return false // the object is the original; another one has another UID
	}
	after, err := strconv.ParseUint(info(operation, afterInfo), 10, 64)
	rec, _ := recordOf(o)
	return err != nil || rec.Created > after
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
	if commandID(o.child("operation")) == last || commandID(o.child("status", "operationState", "operation")) == last {
		return ""
	}
	return last
}

// planStatus writes the spoke's status to the hub's object. While a command is
// pending its operationState stays until the spoke shows that command; that of a
// command which was never run stays until the spoke runs something later.
func (r Rules) planStatus(e stream.Event, current *object, refresh string) ([]Write, *stream.Refusal) {
	if e.Verb == stream.Delete || current == nil || r.sourceUID(*current) != e.Version.SourceUID || r.unsendable(*current) != "" {
		return nil, nil // no object to show it on
	}
	data, err := decode(e.Data)
	if err != nil {
		return nil, invalid("the status is not a JSON object")
	}
	status, ok := data["status"].(map[string]any)
	if !ok {
		return nil, invalid("the event carries no status")
	}
	next := current.clone()
	list := slices.DeleteFunc(conditions(status), isErrorCondition)
	for _, c := range conditions(current.child("status")) {
		if isErrorCondition(c) {
			list = append(list, c)
		}
	}
	setConditions(status, list)
	id := commandID(next.child("operation"))
	ours := current.child("status", "operationState")
	theirs, _ := status["operationState"].(map[string]any)
	operation, _ := theirs["operation"].(map[string]any)
	switch {
	case next.child("operation") == nil:
		// Both times are RFC 3339 in UTC, as Kubernetes writes them.
		if neverRan(ours) && stringAt(theirs, "startedAt") < stringAt(ours, "finishedAt") {
			status["operationState"] = ours
		}
	case id != "" && data["overtaken"] == id:
		delete(next.fields, "operation") // it ended unseen, while the spoke was away
	case id == "" || commandID(operation) != id:
		delete(status, "operationState")
		if ours != nil {
			status["operationState"] = ours
		}
	case completed(theirs):
		delete(next.fields, "operation")
	case stringAt(ours, "phase") == "Terminating":
		status["operationState"] = ours // a Running from before does not undo it
	}
	if len(status) > 0 || current.child("status") != nil {
		next.fields["status"] = status // else there is nothing to write, as on a copy that was just made
	}
	if refresh != "" && data["refreshed"] == refresh {
		delete(next.child("metadata", "annotations"), refreshKey)
	}
	if bytes.Equal(encode(next.fields), encode(current.fields)) {
		return nil, nil
	}
	return []Write{{Op: Update, Raw: encode(next.fields)}}, nil
}

// neverRan reports whether state is the end of a command that the spoke refused.
func neverRan(state map[string]any) bool {
	return completed(state) && strings.HasPrefix(stringAt(state, "message"), failedMessage)
}

// completed reports whether an operation has come to its end. Running with
// finishedAt is an operation that will be retried.
func completed(state map[string]any) bool {
	switch stringAt(state, "phase") {
	case "Succeeded", "Failed", "Error":
		return stringAt(state, "finishedAt") != ""
	}
	return false
}
