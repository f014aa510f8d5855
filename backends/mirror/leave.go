package mirror

import (
	"slices"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// approvedKey is the annotation by which somebody confirms the deletion of resources
// that ask for it (sync option Delete=confirm). Its value is a time; Argo CD takes it
// for a confirmation unless it is before the Application's deletionTimestamp.
const approvedKey = "argocd.argoproj.io/deletion-approved"

// approved reports whether the deletion of an Application was confirmed, by the
// clocks of its own Kubernetes cluster, in which all its times were made.
func approved(o object) bool {
	deleted, err := time.Parse(time.RFC3339, o.meta("deletionTimestamp"))
	if err != nil {
		return false
	}
	at, err := time.Parse(time.RFC3339, o.annotation(approvedKey))
	return err == nil && !at.Before(deleted)
}

// approve brings the confirmation of a leaving event into the form in which the spoke's
// Argo CD takes it: clocks of hub and spoke are never compared, and the spoke's deletion
// may be later than the confirmation, so what the hub said is said again in the time of
// the copy's own deletion. It reports whether the confirmation has to wait for that.
func approve(annotations, data map[string]any, current object) (waits bool) {
	at, _ := annotations[approvedKey].(string)
	delete(annotations, approvedKey)
	if is, _ := data["approved"].(bool); !is {
		return false // a confirmation of another deletion, or none
	}
	deleted := current.meta("deletionTimestamp")
	if deleted == "" {
		return true
	}
	annotations[approvedKey] = at
	next := current.clone()
	if next.setAnnotation(approvedKey, at); !approved(next) {
		annotations[approvedKey] = deleted
	}
	return false
}

// leave passes a witnessed cascading deletion on: the copy gets its cascade
// finalizer in the step in which it is deleted. As long as it is there it has the
// labels and annotations of the hub, by which people confirm a deletion, and stop and
// resume what Argo CD does.
func (r Rules) leave(e stream.Event, current *object, data map[string]any) ([]Write, *stream.Refusal) {
	rec := record{}
	if current != nil {
		rec, _ = recordOf(*current)
	}
	switch {
	case current == nil && r.fenced && !r.looked:
		return []Write{{Op: Look}}, nil // its end is for ever, and a cache may be behind
	case current == nil || !r.isCopy(*current):
		return nil, nil // nothing of ours is there: done
	case current.annotation(sourceUIDKey) != e.Version.SourceUID:
		// The copy of an earlier object of that name. Nobody asked for the end of its
		// workloads.
		return r.letGo(current)
	case current.deleting() && !rec.Leaving && !current.cascades():
		return nil, nil // somebody on the spoke deletes it alone; no finalizer can be added
	}
	labels, _ := data["labels"].(map[string]any)
	annotations, _ := data["annotations"].(map[string]any)
	labels, annotations = mirrored(labels), mirrored(annotations)
	waits := approve(annotations, data, *current)
	next := current.clone()
	replaceKeys(next, "labels", rec.Labels, labels)
	replaceKeys(next, "annotations", rec.Annotations, annotations)
	resume(next, rec, annotations)
	rec.Labels, rec.Annotations = sortedKeys(labels), sortedKeys(annotations)
	rec.Created, rec.History = r.created(next, rec, e.Revision), r.history(next, rec)
	rec.Revision, rec.Leaving, rec.Releasing, rec.Unconfirmed = e.Revision, true, false, false
	hash := rec.Hash
	if !waits {
		rec.Hash = e.Version.Hash.String() // else it is to come again once it is being deleted
	}
	if current.deleting() {
		rec.Quiet = nil
		r.stamp(next, rec)
		return update(*current, next), nil
	}
	if refusal := fruitless(*current, r.projectNamed(projectOf(current.child("spec")))); refusal != nil {
		return nil, refusal
	}
	finalizers, _ := data["leaving"].([]any)
	next.setFinalizers(withCascade(next.finalizers(), finalizers))
	kept := rec.Quiet != nil && slices.ContainsFunc(current.finalizers(), isCascade)
	if (hooked(*current) || rec.Quiet != nil) && !r.quieten(next, *current, &rec, kept) {
		rec.Hash = hash
		r.stamp(next, rec)
		return update(*current, next), &quietening
	}
	r.stamp(next, rec)
	return []Write{{Op: Update, Raw: encode(next.fields)}, {Op: Delete}}, nil
}

// withCascade adds the cascade finalizers of a leaving event to those of a copy.
func withCascade(finalizers []string, witnessed []any) []string {
	for _, f := range witnessed {
		if s, ok := f.(string); ok && isCascade(s) && !slices.Contains(finalizers, s) {
			finalizers = append(finalizers, s)
		}
	}
	return finalizers
}

// replaceKeys puts labels or annotations of the source in the place of those that it
// had before.
func replaceKeys(o object, field string, before []string, values map[string]any) {
	m := o.child("metadata", field)
	for _, key := range before {
		delete(m, key)
	}
	for key, value := range values {
		o.ensure("metadata", field)[key] = value
	}
}
