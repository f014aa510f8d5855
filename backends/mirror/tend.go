package mirror

import (
	"slices"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// Situation is what Tend knows beside the object.
type Situation struct {
	Now time.Time
	// Present says that there is a connection, and that the spoke is known to hold
	// the Application.
	Present bool
	// Refusal is why the spoke did not take the object; nil when it did, or was
	// not asked.
	Refusal *stream.Refusal
	// Failure is why the spoke will never run the command of this moment; nil when
	// it may.
	Failure *stream.Refusal
	// Gone says that the spoke holds nothing any more of this object, whose
	// deletion it witnessed.
	Gone bool
	// NewID returns a random id for a command.
	NewID func() string
}

// Tend returns the upkeep that an Application on the hub needs besides what
// events bring: ids and visible states of commands, the end of finalizers, and
// the condition that says why the spoke did not take a spec. It returns false
// when it needs none.
func (r Rules) Tend(current object, s Situation) ([]byte, bool) {
	if r.Side != stream.Hub || current.key.Kind != stream.Application || r.sourceUID(current) == "" {
		return nil, false
	}
	next := current.clone()
	changed := false
	ours := current.label(ignoreSyncKey) != "true" && r.unsendable(current) == ""
	if ours && current.deleting() && (s.Gone || r.Mode == stream.Autonomous || !current.cascades()) {
		changed = next.dropFinalizers(isArgoCD)
	} else {
		if ours {
			changed = r.announce(next, s)
		}
		changed = r.report(next, s) || changed
	}
	if !changed {
		return nil, false
	}
	return encode(next.fields), true
}

// announce gives a new operation its id and shows where it is.
func (r Rules) announce(o object, s Situation) bool {
	operation := o.child("operation")
	if operation == nil {
		return false
	}
	state := o.child("status", "operationState")
	shown := commandID(o.child("status", "operationState", "operation"))
	id := commandID(operation)
	switch {
	case id == "" && shown != "" && !completed(state):
		// RollingSync writes the operation anew on each pass: the same command.
		// The list of the state is what was sent, with all its entries.
		operation["info"] = clone(o.child("status", "operationState", "operation")["info"])
		return true
	case id == "" || shown != id:
		if id == "" {
			id = s.NewID()
			addInfo(operation, commandInfo, id)
		}
		started := s.Now.UTC().Format(time.RFC3339)
		if r.startedByApplicationSet(operation) {
			// RollingSync takes a later start for an operation that ran.
			started = o.meta("creationTimestamp")
		}
		o.ensure("status")["operationState"] = map[string]any{
			"operation": clone(operation),
			"phase":     "Running",
			"message":   waitingMessage + r.Agent.String(),
			"startedAt": started,
		}
		return true
	case !sent(o) && (stringAt(state, "phase") == "Terminating" || o.deleting()):
		// Nobody but the hub knows of it, so the hub alone ends it.
		state["phase"], state["message"] = "Error", failedMessage+r.Agent.String()+": terminated before it was sent"
		state["finishedAt"] = s.Now.UTC().Format(time.RFC3339)
		delete(o.fields, "operation")
		return true
	case sent(o) && s.Failure != nil && !completed(state):
		state["phase"], state["message"] = "Error", failedMessage+r.Agent.String()+": "+s.Failure.Message
		state["finishedAt"] = s.Now.UTC().Format(time.RFC3339)
		delete(o.fields, "operation")
		return true
	case !sent(o) && s.Present:
		// The write is tested on the resourceVersion that it records.
		addInfo(operation, afterInfo, o.meta("resourceVersion"))
		state["operation"] = clone(operation)
		state["message"] = sentMessage + r.Agent.String()
		return true
	}
	return false
}

func (r Rules) startedByApplicationSet(operation map[string]any) bool {
	by, _ := operation["initiatedBy"].(map[string]any)
	return stringAt(by, "username") == "applicationset-controller"
}

// report keeps the condition that says why the spoke did not take the spec.
func (r Rules) report(o object, s Situation) bool {
	message := ""
	switch {
	case o.label(ignoreSyncKey) != "true" && r.unsendable(o) != "":
		message = "not sent: " + r.unsendable(o)
	case s.Refusal != nil && s.Refusal.Kind != stream.RefusalUnavailable:
		message = "agent " + r.Agent.String() + " did not apply it: " + s.Refusal.Message
	}
	list := conditions(o.child("status"))
	i := slices.IndexFunc(list, isErrorCondition)
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
			"type": errorCondition, "message": message,
			"lastTransitionTime": s.Now.UTC().Format(time.RFC3339),
		})
	}
	setConditions(o.ensure("status"), list)
	return true
}
