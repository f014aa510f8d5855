package ownership

import (
	"slices"
	"time"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// applicationContent is what a source sends of an Application: on the hub also that it is to
// go with its workloads.
func applicationContent(r Rules, o object.Object, _ operations.Requests) (data map[string]any, leaving bool) {
	if r.Unsendable(o) != "" {
		return nil, false
	}
	data = canonical(o, o.Fields["spec"])
	if r.Side != stream.Hub || !o.Deleting() {
		return data, false
	}
	if !o.Cascades() {
		return nil, false // it goes without its workloads, or they went
	}
	witnessed := slices.DeleteFunc(o.Finalizers(), func(f string) bool { return !object.IsCascade(f) })
	data["leaving"] = object.AnyList(witnessed)
	if approved(o) {
		data["approved"] = true
	}
	return data, true
}

// planApplication plans for the copy, or mirror, of an Application.
func planApplication(r Rules, e stream.Event, key stream.ResourceKey, current *object.Object,
	_ operations.Requests) ([]Write, *stream.Refusal) {
	if e.Verb == stream.Delete {
		return planGone(r, e, current)
	}
	data, refusal := newerContent(r, e, current)
	if refusal != nil {
		return nil, refusal
	}
	if _, leaving := data["leaving"].([]any); !leaving || r.Side != stream.Spoke {
		return planSpec(r, e, key, current, data)
	}
	if refusal := r.Policy.Operation("cascade"); refusal != nil {
		return nil, refusal
	}
	if refusal := r.RefuseRemoval(current); refusal != nil {
		return nil, refusal
	}
	return planLeaving(r, e, current, data)
}

// approvedKey is the annotation by which someone confirms the deletion of resources
// that ask for it (sync option Delete=confirm). Its value is a time; Argo CD takes it
// for a confirmation unless it is before the Application's deletionTimestamp.
const approvedKey = "argocd.argoproj.io/deletion-approved"

// approved reports whether the deletion of an Application was confirmed, by the
// clocks of its own Kubernetes cluster, in which all its times were made.
func approved(o object.Object) bool {
	deleted, err := time.Parse(time.RFC3339, o.Meta("deletionTimestamp"))
	if err != nil {
		return false
	}
	at, err := time.Parse(time.RFC3339, o.Annotation(approvedKey))
	return err == nil && !at.Before(deleted)
}

// approve brings the confirmation of a leaving event into the form in which the spoke's
// Argo CD takes it: clocks of hub and spoke are never compared, and the spoke's deletion
// may be later than the confirmation, so what the hub said is said again in the time of
// the copy's own deletion. It reports whether the confirmation has to wait for that.
func approve(annotations, data map[string]any, current object.Object) (waits bool) {
	at, _ := annotations[approvedKey].(string)
	delete(annotations, approvedKey)
	if is, _ := data["approved"].(bool); !is {
		return false // a confirmation of another deletion, or none
	}
	deleted := current.Meta("deletionTimestamp")
	if deleted == "" {
		return true
	}
	annotations[approvedKey] = at
	next := current.Clone()
	if next.SetAnnotation(approvedKey, at); !approved(next) {
		annotations[approvedKey] = deleted
	}
	return false
}

// planLeaving passes a witnessed cascading deletion on: the copy gets its cascade
// finalizer in the step in which it is deleted. As long as it is there it has the
// labels and annotations of the hub, by which people confirm a deletion, and stop and
// resume what Argo CD does.
func planLeaving(r Rules, e stream.Event, current *object.Object, data map[string]any) ([]Write, *stream.Refusal) {
	rec := record.Record{}
	if current != nil {
		rec, _ = record.Of(*current)
	}
	switch {
	case current == nil && r.Fenced && !r.Live:
		return []Write{{Op: ReadLive}}, nil // its end is for ever, and a cache may be behind
	case current == nil || !r.IsCopy(*current):
		return nil, nil // nothing of ours is there: done
	case current.Annotation(object.SourceUIDKey) != e.Version.SourceUID:
		// The copy of an earlier object of that name. No one asked for the end of its
		// workloads.
		return endCopy(r, current)
	case current.Deleting() && !rec.Leaving && !current.Cascades():
		return nil, nil // another writer on the spoke deletes it alone; no finalizer can be added
	}
	labels, _ := data["labels"].(map[string]any)
	annotations, _ := data["annotations"].(map[string]any)
	labels, annotations = object.Mirrored(labels), object.Mirrored(annotations)
	waits := approve(annotations, data, *current)
	next := current.Clone()
	replaceKeys(next, "labels", rec.Labels, labels)
	replaceKeys(next, "annotations", rec.Annotations, annotations)
	resumeReconciliation(next, rec, annotations)
	rec.Labels, rec.Annotations = object.SortedKeys(labels), object.SortedKeys(annotations)
	rec.Created, rec.History = r.CreatedAt(next, rec, e.Revision), r.HistoryOf(next, rec)
	rec.Revision, rec.Leaving, rec.Releasing, rec.Unconfirmed = e.Revision, true, false, false
	hash := rec.Hash
	if !waits {
		rec.Hash = e.Version.Hash.String() // else it is to come again once it is being deleted
	}
	if current.Deleting() {
		rec.Quiescing = nil
		stamp(next, rec)
		return update(*current, next), nil
	}
	if refusal := fruitless(*current, projectNamed(r, object.ProjectOf(current.Child("spec")))); refusal != nil {
		return nil, refusal
	}
	finalizers, _ := data["leaving"].([]any)
	next.SetFinalizers(withCascade(next.Finalizers(), finalizers))
	kept := rec.Quiescing != nil && slices.ContainsFunc(current.Finalizers(), object.IsCascade)
	if (hooked(*current) || rec.Quiescing != nil) && !quiesce(r, next, *current, &rec, kept) {
		rec.Hash = hash
		stamp(next, rec)
		return update(*current, next), &quiescing
	}
	stamp(next, rec)
	return []Write{{Op: Update, Raw: object.Encode(next.Fields)}, {Op: Delete}}, nil
}

// withCascade adds the cascade finalizers of a leaving event to those of a copy.
func withCascade(finalizers []string, witnessed []any) []string {
	for _, f := range witnessed {
		if s, ok := f.(string); ok && object.IsCascade(s) && !slices.Contains(finalizers, s) {
			finalizers = append(finalizers, s)
		}
	}
	return finalizers
}
