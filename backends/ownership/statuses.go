package ownership

import (
	"slices"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/statuses"
	"github.com/argomesh/argomesh/stream"
)

// statusContent is what a spoke tells of an Application's status and operation.
func statusContent(_ Rules, o object.Object, _ operations.Requests) (data map[string]any, leaving bool) {
	data = statusForm(o, nil)
	operation, state := o.Child("operation"), o.Child("status", "operationState")
	// An operation that was written again over a running one is that one: the
	// controller goes on with what operationState holds.
	rewritten := !operations.Completed(state) &&
		operations.CommandID(o.Child("status", "operationState", "operation")) != ""
	if operation != nil && operations.CommandID(operation) == "" && !rewritten {
		data["operation"] = operation
	}
	if id := operations.Superseded(o); id != "" {
		data["overtaken"] = id
	}
	operations.ReportRequests(o, data)
	return data, false
}

// planStatus writes the spoke's status to the hub's object.
func planStatus(r Rules, e stream.Event, _ stream.ResourceKey, current *object.Object,
	asked operations.Requests) ([]Write, *stream.Refusal) {
	if current == nil {
		return nil, nil // no object to show it on
	}
	next := current.Clone()
	if e.Verb == stream.Delete {
		if r.SourceUID(*current) == "" || operations.StartedOnSpoke(next.Child("operation")) == nil {
			return nil, nil // the last status stays to be seen
		}
		delete(next.Fields, "operation")
		return []Write{{Op: Update, Raw: object.Encode(next.Fields)}}, nil
	}
	if r.SourceUID(*current) != e.Version.SourceUID || r.Unsendable(*current) != "" {
		return nil, nil
	}
	data, refusal := object.ContentOf(e, "the status")
	if refusal != nil {
		return nil, refusal
	}
	status, ok := data["status"].(map[string]any)
	if !ok {
		return nil, stream.Invalid("the event carries no status")
	}
	list := slices.DeleteFunc(object.Conditions(status), object.IsOwnCondition)
	for _, c := range object.Conditions(current.Child("status")) {
		if object.IsOwnCondition(c) {
			list = append(list, c)
		}
	}
	object.SetConditions(status, list)
	if state := showOperation(r, next, data); state != nil {
		status["operationState"] = state
	} else {
		delete(status, "operationState")
	}
	if len(status) > 0 || current.Child("status") != nil {
		next.Fields["status"] = status // else there is nothing to write, as on a copy that was just made
	}
	asked.End(next, data)
	if statuses.Thins(*current, next) {
		return nil, nil
	}
	return update(*current, next), nil
}

// showOperation brings the operation of a hub Application in line with what the
// spoke tells in data, and returns the operationState to be shown with it. While a
// command is pending its operationState stays until the spoke shows that command;
// that of a command which was never run stays until the spoke runs something
// later; and a termination stays until the spoke shows the end.
func showOperation(r Rules, o object.Object, data map[string]any) map[string]any {
	operation, ours := operations.Of(o), o.Child("status", "operationState")
	id := operations.CommandID(operation)
	sent := object.Object{Fields: data}
	theirs, started := sent.Child("status", "operationState"), sent.Child("operation")
	theirID := operations.CommandID(sent.Child("status", "operationState", "operation"))
	switch {
	case operation == nil || operations.StartedOnSpoke(operation) != nil:
		delete(o.Fields, "operation")
		if operations.NeverRan(ours) && operations.IsFromBefore(ours, theirs) {
			return ours
		}
		if started != nil {
			operations.AddInfo(started, object.SpokeInfo, r.Agent.String())
			o.Fields["operation"] = started
		}
		end := operations.Termination(o)
		if end.StartedAt != "" && end.StartedAt == object.StringAt(theirs, "startedAt") && theirID == "" &&
			!operations.Completed(theirs) {
			return ours
		}
	case id != "" && data["overtaken"] == id:
		delete(o.Fields, "operation") // it ended unseen, while the spoke was away
	case id == "" || theirID != id:
		return ours
	case operations.Completed(theirs) && operations.StartedByApplicationSet(operation) &&
		!operations.ReconciledSince(sent):
		// RollingSync would take an end for none, and sync again, until it also sees
		// that the Application was reconciled; the controller does so right after.
		return ours
	case operations.Completed(theirs):
		delete(o.Fields, "operation")
	case operations.Terminating(ours):
		return ours // a Running from before does not undo it
	}
	return theirs
}
