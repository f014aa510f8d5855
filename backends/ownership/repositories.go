package ownership

import (
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// repositoryContent is what a hub sends of a Secret, if it is one of those. Whether the
// agent needs it is not said here: see needs. The type of the Secret does not travel:
// it could make the spoke's API server do more than to store it.
func repositoryContent(r Rules, o object.Object, _ operations.Requests) (data map[string]any, leaving bool) {
	secretType := o.Label(object.SecretTypeKey)
	if !object.IsCredential(secretType) || o.Annotation(object.SourceUIDKey) != "" ||
		object.MayWrite(secretType) && !r.WriteCredentials {
		return nil, false
	}
	secret := o.Child("data")
	if secret == nil {
		secret = map[string]any{}
	}
	return map[string]any{
		"labels":      object.Mirrored(o.Child("metadata", "labels")),
		"annotations": object.Mirrored(o.Child("metadata", "annotations")),
		"data":        secret,
	}, false
}

// planRepository makes the copy of a repository's Secret on the spoke. No Secret but
// a repository's is ever written over.
func planRepository(r Rules, e stream.Event, key stream.ResourceKey, current *object.Object,
	_ operations.Requests) ([]Write, *stream.Refusal) {
	if e.Verb == stream.Delete {
		return planGone(r, e, current)
	}
	content, refusal := object.ContentOf(e, "the event's data")
	if refusal != nil {
		return nil, refusal
	}
	data, ok := content["data"].(map[string]any)
	labels, _ := content["labels"].(map[string]any)
	annotations, _ := content["annotations"].(map[string]any)
	switch {
	case !ok:
		return nil, stream.Invalid("the event carries no data")
	case !object.IsCredential(object.StringAt(labels, object.SecretTypeKey)):
		return nil, stream.Invalid("it is not the Secret of a repository")
	}
	if refusal := r.Policy.Repository(object.StringAt(labels, object.SecretTypeKey), data); refusal != nil {
		return nil, refusal
	}
	if refusal := r.Outdated(e, current); refusal != nil {
		return nil, refusal
	}
	next, old := object.New(key), record.Record{}
	adopts := false
	switch {
	case current == nil:
	case r.OthersCopy(*current) != nil:
		return nil, r.OthersCopy(*current)
	case !r.IsCopy(*current) && !object.IsCredential(current.Label(object.SecretTypeKey)):
		return nil, &stream.Refusal{
			Kind:    stream.RefusalNotOwned,
			Message: "a Secret of that name on the spoke is not that of a repository; rename one of the two",
		}
	case current.Deleting():
		return nil, &stream.Refusal{
			Kind:    stream.RefusalUnavailable,
			Message: "the Secret is being deleted on the spoke; it is created again when it is gone",
		}
	case !r.IsCopy(*current):
		if refusal := adoption(r, *current); refusal != nil {
			return nil, refusal
		}
		next, old, adopts = current.Clone(), record.Record{Adopted: current.UID()}, true
	default:
		next = current.Clone()
		old, _ = record.Of(next)
	}
	next = writeSpec(r, next, old, e, data, object.Mirrored(labels), object.Mirrored(annotations))
	switch {
	case current == nil:
		return []Write{{Op: Create, Raw: object.Encode(next.Fields)}}, nil
	case adopts:
		return adopt(*current, next), nil
	}
	return update(*current, next), nil
}
