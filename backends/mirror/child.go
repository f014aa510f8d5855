package mirror

import (
	"fmt"
	"time"

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

// isChild reports whether a hub object is the mirror of a child application.
func (r Rules) isChild(o object) bool {
	if r.Side != stream.Hub || r.Mode != stream.Managed || o.key.Kind != stream.Application {
		return false
	}
	rec, ok := recordOf(o)
	return ok && isMirror(o) && rec.Child && rec.Agent == r.Agent.String()
}

// uidIn is the UID at its source of what o is, or mirrors, in collection c; empty
// when it has no part there.
func (r Rules) uidIn(c stream.Collection, o object) string {
	switch {
	case c != stream.Children:
		return r.sourceUID(o)
	case r.isChild(o):
		return o.annotation(sourceUIDKey)
	case r.Side == stream.Spoke && r.Mode == stream.Managed && r.Children &&
		o.key.Kind == stream.Application && o.annotation(sourceUIDKey) == "":
		return o.uid()
	}
	return ""
}

// childForm is what a spoke sends of a child application.
func childForm(o object) map[string]any {
	form := canonical(o, o.fields["spec"])
	form["status"] = statusOf(o)
	return form
}

// shown is the status of a child's mirror as far as it must be what was written: the
// end of an operation that we refused is ours. Until it notes what the spoke shows, the
// mirror is sent again, so that what the spoke runs since can be told: see isFromBefore.
func shown(o object) map[string]any {
	status := statusOf(o)
	state, _ := status["operationState"].(map[string]any)
	operation, _ := state["operation"].(map[string]any)
	if neverRan(state) && info(operation, beforeInfo) != "" {
		delete(status, "operationState")
	}
	return status
}

// planChild makes the mirror of a child application what the spoke says.
func (r Rules) planChild(e stream.Event, key stream.ResourceKey, current *object) ([]Write, *stream.Refusal) {
	if e.Verb == stream.Delete {
		if current == nil || !r.isChild(*current) {
			return nil, nil
		}
		return r.release(current), nil
	}
	data, refusal := contentOf(e, "the event's data")
	if refusal != nil {
		return nil, refusal
	}
	spec, ok := data["spec"].(map[string]any)
	status, shows := data["status"].(map[string]any)
	switch {
	case !ok || !shows:
		return nil, invalid("the event carries no spec or no status")
	case !r.Children:
		return nil, &stream.Refusal{Kind: stream.RefusalNotOwned, Message: "the hub shows no child applications of this agent"}
	case current != nil && current.deleting():
		return nil, &stream.Refusal{
			Kind:    stream.RefusalUnavailable,
			Message: "the Application is being deleted on the hub; it is made anew when it is gone",
		}
	case current != nil && !r.isChild(*current):
		return nil, &stream.Refusal{
			Kind:    stream.RefusalNotOwned,
			Message: "the hub has an Application of that name of its own, which goes before the spoke's",
		}
	}
	spec = r.mapped(e.Key, spec)
	dropped, refusal := r.fit(key.Kind, spec)
	if refusal != nil {
		return nil, refusal
	}
	r.fitStatus(status)
	next, old := newObject(key), record{}
	if current != nil {
		next = current.clone()
		old, _ = recordOf(next)
		theirs, _ := status["operationState"].(map[string]any)
		if ours := next.child("status", "operationState"); neverRan(ours) && isFromBefore(ours, theirs) {
			status["operationState"] = ours
		}
	}
	next.fields["status"] = status
	labels, _ := data["labels"].(map[string]any)
	annotations, _ := data["annotations"].(map[string]any)
	next = r.write(next, old, e, spec, mirrored(labels), mirrored(annotations))
	r.shorten(next, dropped, nil)
	switch {
	case current == nil:
		return strictly([]Write{{Op: Create, Raw: encode(next.fields)}}), nil
	case thins(*current, next):
		return nil, nil
	}
	return strictly(update(*current, next)), nil
}

// tendChild answers what somebody asks of the mirror of a child application, and
// lets one that is being deleted go; it is made anew.
func (r Rules) tendChild(current object, s Situation) ([]byte, bool) {
	next := current.clone()
	if current.deleting() {
		dropped := next.dropFinalizers(isArgoCD)
		return encode(next.fields), dropped
	}
	changed := false
	if operation := next.child("operation"); operation != nil {
		at := s.Now.UTC().Format(time.RFC3339)
		next.ensure("status")["operationState"] = map[string]any{
			"operation": operation, "phase": "Error", "startedAt": at, "finishedAt": at,
			"message": fmt.Sprintf("%s%s: %s", failedMessage, r.Agent, childMessage),
		}
		delete(next.fields, "operation")
		changed = true
	}
	for _, key := range []string{refreshKey, hydrateKey} {
		if current.annotation(key) != "" {
			delete(next.child("metadata", "annotations"), key) // what is shown is the newest there is
			changed = true
		}
	}
	return encode(next.fields), changed
}
