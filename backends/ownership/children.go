package ownership

import (
	"fmt"
	"time"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/backends/statuses"
	"github.com/argomesh/argomesh/stream"
)

// Child applications are those of a managed spoke that are not the hub's: most are
// made there by the sync of another Application. The hub shows them read-only, if
// it is asked to, each as one entry with its spec and its status. Nothing the hub
// does to such a mirror reaches the spoke.
//
// A mirror names the agent as its destination, so that a controller on the hub,
// which leaves the clusters of agents alone, leaves it alone too. It keeps the
// project's name: a managed spoke has its projects from the hub, and argocd-server
// shows the details of an Application only in a project that exists and admits its
// namespace. It is no Application of the hub for a project that is being deleted.
//
// To make a child the hub's, release its mirror (ReleasedKey): then it is the hub's
// Application of that name, and the spoke's is adopted, if Policy.Adopt allows that.

// childMessage is what becomes of an operation on a child application.
const childMessage = "it is a child application of the spoke, shown read-only; sync its parent"

// childContent is what a spoke sends of a child application.
func childContent(_ Rules, o object.Object, _ operations.Requests) (data map[string]any, leaving bool) {
	data = canonical(o, o.Fields["spec"])
	data["status"] = statusOf(o)
	return data, false
}

// planChild makes the mirror of a child application what the spoke says.
func planChild(r Rules, e stream.Event, key stream.ResourceKey, current *object.Object,
	_ operations.Requests) ([]Write, *stream.Refusal) {
	if e.Verb == stream.Delete {
		if current == nil || !r.IsChild(*current) {
			return nil, nil
		}
		return release(r, current), nil
	}
	data, refusal := object.ContentOf(e, "the event's data")
	if refusal != nil {
		return nil, refusal
	}
	spec, ok := data["spec"].(map[string]any)
	status, shows := data["status"].(map[string]any)
	switch {
	case !ok || !shows:
		return nil, stream.Invalid("the event carries no spec or no status")
	case !r.Children:
		return nil, &stream.Refusal{Kind: stream.RefusalNotOwned,
			Message: "the hub shows no child applications of this agent"}
	case current != nil && current.Deleting():
		return nil, &stream.Refusal{
			Kind:    stream.RefusalUnavailable,
			Message: "the Application is being deleted on the hub; it is created again when it is gone",
		}
	case current != nil && !r.IsChild(*current):
		return nil, &stream.Refusal{
			Kind:    stream.RefusalNotOwned,
			Message: "the hub has an Application of that name of its own, which goes before the spoke's",
		}
	}
	spec = mapped(r, e.Key, spec)
	dropped, refusal := prune(r, key.Kind, spec)
	if refusal != nil {
		return nil, refusal
	}
	pruneStatus(r, status)
	next, old := object.New(key), record.Record{}
	if current != nil {
		next = current.Clone()
		old, _ = record.Of(next)
		theirs, _ := status["operationState"].(map[string]any)
		if ours := next.Child("status", "operationState"); operations.NeverRan(ours) &&
			operations.IsFromBefore(ours, theirs) {
			status["operationState"] = ours
		}
	}
	next.Fields["status"] = status
	labels, _ := data["labels"].(map[string]any)
	annotations, _ := data["annotations"].(map[string]any)
	next = writeSpec(r, next, old, e, spec, object.Mirrored(labels), object.Mirrored(annotations))
	shorten(r, next, dropped, nil)
	switch {
	case current == nil:
		return strictly([]Write{{Op: Create, Raw: object.Encode(next.Fields)}}), nil
	case statuses.Thins(*current, next):
		return nil, nil
	}
	return strictly(update(*current, next)), nil
}

// updateChild answers what someone asks of the mirror of a child application, and
// lets one that is being deleted go; it is made again.
func updateChild(r Rules, current object.Object, s LinkState) ([]byte, bool) {
	next := current.Clone()
	if current.Deleting() {
		dropped := next.DropFinalizers(object.IsArgoCD)
		return object.Encode(next.Fields), dropped
	}
	changed := false
	if operation := next.Child("operation"); operation != nil {
		at := s.Now.UTC().Format(time.RFC3339)
		next.Ensure("status")["operationState"] = map[string]any{
			"operation": operation, "phase": "Error", "startedAt": at, "finishedAt": at,
			"message": fmt.Sprintf("%s%s: %s", operations.FailedMessage, r.Agent, childMessage),
		}
		delete(next.Fields, "operation")
		changed = true
	}
	for _, key := range []string{object.RefreshKey, object.HydrateKey} {
		if current.Annotation(key) != "" {
			delete(next.Child("metadata", "annotations"), key) // what is shown is the newest there is
			changed = true
		}
	}
	return object.Encode(next.Fields), changed
}
