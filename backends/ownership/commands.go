package ownership

import (
	"slices"

	"github.com/argomesh/argomesh/backends/appspec"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/stream"
)

// commandContent is what the hub asks of an Application; nil when nothing.
func commandContent(r Rules, o object.Object, asked operations.Requests) (data map[string]any, leaving bool) {
	if r.Unsendable(o) != "" {
		return nil, false
	}
	data = map[string]any{}
	if r.SentToOther(o) == "" {
		if operations.Sent(o) {
			data["operation"] = operations.Of(o)
		}
		if end := operations.Termination(o); end != (operations.Target{}) {
			data["terminate"] = end.Encode()
		}
	}
	asked.Ask(o, data)
	if len(data) == 0 {
		return nil, false
	}
	return data, false
}

// planCommand starts an operation that this spoke has not yet started, terminates
// one, and asks for what it was not yet asked for, in one write.
func planCommand(r Rules, e stream.Event, _ stream.ResourceKey, current *object.Object,
	_ operations.Requests) ([]Write, *stream.Refusal) {
	if e.Verb == stream.Delete {
		return nil, nil
	}
	if current == nil || r.SourceUID(*current) != e.Version.SourceUID {
		return nil, &stream.Refusal{
			Kind: stream.RefusalUnavailable, Message: "the Application that the command is for is not on the spoke",
		}
	}
	data, refusal := object.ContentOf(e, "the command")
	if refusal != nil {
		return nil, refusal
	}
	if refusal := r.Policy.Command(data); refusal != nil {
		return nil, refusal
	}
	if asked, _ := data["hydrate"].(map[string]any); asked != nil &&
		object.StringAt(asked, "id") != current.Annotation(object.HydratedKey) {
		if refusal := admitted(r, *current); refusal != nil {
			return nil, refusal
		}
	}
	next := current.Clone()
	operations.ApplyRequests(next, data)
	end := operations.TargetOf(data)
	if operation, ok := data["operation"].(map[string]any); ok {
		refusal = startOperation(r, next, operation, end)
	}
	if end.Runs(next) {
		next.Child("status", "operationState")["phase"] = "Terminating"
	}
	return strictly(update(*current, next)), refusal
}

// startOperation starts an operation in o unless it was taken before, and says why it cannot.
// One that is to end before it began is taken but never starts.
func startOperation(r Rules, o object.Object, operation map[string]any, end operations.Target) *stream.Refusal {
	id := operations.CommandID(operation)
	if id == "" {
		return stream.Invalid("the operation carries no command id")
	}
	ids := operations.TakenCommands(o)
	unstarted := slices.Contains(ids, operations.UnstartedPrefix+id)
	inProgress := operations.CommandID(o.Child("operation")) == id
	switch {
	case unstarted:
	case inProgress && end.Command == id && operations.CommandID(o.Child("status", "operationState", "operation")) != id:
		return &stream.Refusal{
			Kind: stream.RefusalUnavailable, Message: "the operation that is to end has not begun on the spoke",
		}
	// The object itself tells as well, should someone have removed our list.
	case inProgress, operations.CommandID(o.Child("status", "operationState", "operation")) == id:
		return nil
	case slices.Contains(ids, id):
		// The hub does not know that it ended. As the last one that was taken it is told
		// to be superseded.
		ids = slices.DeleteFunc(ids, func(other string) bool { return other == id })
		operations.SetTakenCommands(o, append(ids, id))
		return nil
	case r.CopyRecreated(o, operation):
		return stream.Invalid("the Application was created again on the spoke after the command was sent; " +
			"whether it ran before is not known, so it is not run again")
	case end.Command == id:
		operations.SetTakenCommands(o, append(ids, operations.UnstartedPrefix+id))
	case o.Child("operation") != nil:
		return &stream.Refusal{
			Kind: stream.RefusalUnavailable, Message: "another operation is in progress on the spoke",
		}
	default:
		if refusal := pruneOperation(r, operation); refusal != nil {
			return refusal
		}
		if refusal := admitted(r, o); refusal != nil {
			return refusal
		}
		if refusal := overrides(r, o, id, operation); refusal != nil {
			return refusal
		}
		o.Fields["operation"] = operation
		delete(o.Child("status"), "operationState")
		operations.SetTakenCommands(o, append(ids, id))
		return nil
	}
	return stream.Invalid("terminated before it was started")
}

// admitted says why the policy, which may be narrower by now, does not admit an
// Application that is there, or its AppProject: it stays, and nothing is done for it.
func admitted(r Rules, o object.Object) *stream.Refusal {
	if r.Mode == stream.Autonomous {
		return nil // it is the owner's
	}
	if refusal := r.Policy.Application(o.Child("spec")); refusal != nil {
		return refusal
	}
	return mayName(r, o.Child("spec"))
}

// overrides lets an operation start on o, or says why it does not: one that brings what
// the Application's own spec does not say is an override. A revision is the spec's own if
// the spoke's controller shows it for the spec's sources; argocd-server resolves it on
// the hub, so it may be newer than what the controller saw last, which is then asked once
// to look again.
func overrides(r Rules, o object.Object, id string, operation map[string]any) *stream.Refusal {
	if mayOverride(r) {
		sync, _ := operation["sync"].(map[string]any)
		return r.Policy.Sources(sync)
	}
	what, onlyRevision := appspec.Beyond(operation, o)
	switch {
	case what == "":
		return nil
	case !onlyRevision || o.Annotation(object.RefreshKey) == "" && o.Annotation(object.ResolvedKey) == id:
		return overriding(r, what)
	case o.Annotation(object.RefreshKey) == "":
		o.SetAnnotation(object.RefreshKey, "normal")
		o.SetAnnotation(object.ResolvedKey, id)
	}
	return &resolves
}

// resolves answers a command whose revision the spoke's controller looks for.
var resolves = stream.Refusal{
	Kind: stream.RefusalUnavailable, Message: "the spoke's Argo CD looks for the revision that the operation names",
}

// mayOverride reports whether the owner of the spoke lets the hub have it sync what its
// Applications do not say. An autonomous agent's Applications say all that it runs.
func mayOverride(r Rules) bool {
	return r.Mode == stream.Managed && r.Policy.Operation(policy.OperationOverride) == nil
}

func overriding(r Rules, what string) *stream.Refusal {
	if r.Mode == stream.Autonomous {
		return &stream.Refusal{
			Kind:    stream.RefusalDenied,
			Message: "an autonomous agent syncs only what the Application on the spoke says, and the operation has " + what,
		}
	}
	return policy.Denied("operations", "override, and the operation has %s", what)
}
