package ownership

import (
	"slices"
	"time"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// endCopy ends a copy and leaves its workloads: what we made goes, and what was adopted is
// given back.
func endCopy(r Rules, current *object.Object) ([]Write, *stream.Refusal) {
	if current == nil || !r.IsCopy(*current) {
		return nil, nil
	}
	if rec, _ := record.Of(*current); rec.Adopted == "" || current.Deleting() {
		return release(r, current), nil // its owner deletes what was his
	}
	return returnAdopted(r, *current)
}

// returnAdopted makes of an adopted copy what was found, as far as it is kept. An Application
// is taken out of reconciliation before, and is given back when Argo CD has ended what it
// had begun; it comes back without automated synchronization and without an operation,
// since a sync of what was found could prune what runs now.
func returnAdopted(r Rules, current object.Object) ([]Write, *stream.Refusal) {
	rec, _ := record.Of(current)
	if current.Key.Kind == stream.Application {
		next := current.Clone()
		if !quiesce(r, next, current, &rec, rec.Releasing && rec.Quiescing != nil) {
			rec.Releasing = true
			stamp(next, rec)
			return update(current, next), &returning
		}
	}
	if current.Found == nil || current.Found.UID != rec.Adopted {
		return []Write{{Op: LoadFound}}, nil
	}
	next, note := asFound(r, current, rec)
	return []Write{
		{Op: Update, Raw: object.Encode(next.Fields)},
		{Op: RemoveFound, Note: note},
	}, nil
}

// returning is the answer to the end of an adopted Application that waits.
var returning = stream.Refusal{
	Kind:    stream.RefusalUnavailable,
	Message: "it was adopted, and is given back when Argo CD has ended what it began before",
}

// asFound is an adopted copy as it was found, and what its owner is told.
func asFound(r Rules, current object.Object, rec record.Record) (next object.Object, note string) {
	was := current.Found
	next = current.Clone()
	putBack(next, "labels", rec.Labels, was.Labels)
	putBack(next, "annotations", append(slices.Clone(rec.Annotations), object.SkipReconcileKey), was.Annotations)
	for _, key := range object.SortedKeys(next.Child("metadata", "annotations")) {
		if object.IsOurs(key) {
			delete(next.Child("metadata", "annotations"), key)
		}
	}
	next.Unmark()
	field := object.ContentField(current.Key.Kind)
	switch {
	case !was.Lost && was.Content != nil:
		next.Fields[field] = was.Content
	case !was.Lost || current.Key.Kind == stream.Secret:
		delete(next.Fields, field)
	case current.Key.Kind == stream.AppProject:
		delete(next.Child("spec"), "destinations")
	}
	note = "agent " + r.Agent.String() + " has given it back as it was before the agent adopted it"
	if was.Lost {
		note = "agent " + r.Agent.String() + " has given it back, but what it was before is lost: " + map[stream.Kind]string{
			stream.Application: "its spec is the hub's", stream.AppProject: "it is without destinations",
			stream.Secret: "it is without data",
		}[current.Key.Kind]
	}
	if current.Key.Kind != stream.Application {
		next.SetAnnotation(object.ReturnedKey, note)
		return next, note
	}
	next.DropFinalizers(object.IsArgoCD)
	next.SetFinalizers(append(next.Finalizers(),
		slices.DeleteFunc(slices.Clone(was.Finalizers), func(f string) bool { return !object.IsArgoCD(f) })...))
	delete(next.Fields, "operation")
	if disarm(next) {
		note += ", but without automated synchronization, which could prune what runs now: look at the difference, and switch it on again"
	}
	status := next.Ensure("status")
	object.SetConditions(status,
		append(slices.DeleteFunc(object.Conditions(status), object.IsReturnedCondition), map[string]any{
			"type": object.ReturnedCondition, "message": note, "lastTransitionTime": r.Now.UTC().Format(time.RFC3339),
		}))
	return next, note
}

// putBack gives the labels, or annotations, that a copy had from its source the values that
// were found, or removes them. What others set since stays.
func putBack(o object.Object, field string, keys []string, was map[string]any) {
	for _, key := range keys {
		delete(o.Child("metadata", field), key)
		if value, there := was[key]; there {
			o.Ensure("metadata", field)[key] = value
		}
	}
}

// disarm takes the automated synchronization from an Application and reports whether
// there was any.
func disarm(o object.Object) bool {
	policy := o.Child("spec", "syncPolicy")
	if policy["automated"] == nil {
		return false
	}
	delete(policy, "automated")
	if len(policy) == 0 {
		delete(o.Child("spec"), "syncPolicy")
	}
	return true
}

// Orphan is what becomes of a hub object when its agent is no more, and whether that is
// still to be waited for. What was adopted is given back.
func (r Rules) Orphan(o object.Object) (writes []Write, waits bool) {
	leaves := r.IsOwnMirror(o)
	if leaves && !o.Deleting() {
		writes, refusal := r.LeaveHub(o)
		return writes, refusal != nil || len(writes) > 0
	}
	freed := o.Deleting() && (leaves ||
		r.Mode == stream.Managed && o.Key.Kind == stream.Application && (record.IsMirror(o) || r.Sendable(o)))
	next := o.Clone()
	if freed && next.DropFinalizers(object.IsArgoCD) {
		writes = append(writes, Write{Op: Update, Raw: object.Encode(next.Fields)})
	}
	return writes, len(writes) > 0
}

// LeaveHub takes a mirror off the hub that no link keeps any more.
func (r Rules) LeaveHub(o object.Object) ([]Write, *stream.Refusal) {
	if rec, _ := record.Of(o); rec.Adopted != "" {
		return returnAdopted(r, o)
	}
	next := o.Clone()
	if next.DropFinalizers(object.IsArgoCD) {
		return []Write{{Op: Update, Raw: object.Encode(next.Fields)}, {Op: Delete}}, nil
	}
	return []Write{{Op: Delete}}, nil
}

// release takes a copy away and leaves its workloads: no Argo CD finalizer, so
// no cascade and no hook, and no reconciliation in between.
func release(r Rules, current *object.Object) []Write {
	if current == nil || !r.IsCopy(*current) {
		return nil
	}
	rec, _ := record.Of(*current)
	if current.Deleting() && rec.Leaving {
		return nil // once witnessed it stays witnessed
	}
	next := current.Clone()
	next.DropFinalizers(object.IsArgoCD)
	if next.Key.Kind == stream.Application {
		next.SetAnnotation(object.SkipReconcileKey, "true")
	}
	rec.Releasing = true
	stamp(next, rec)
	return []Write{{Op: Update, Raw: object.Encode(next.Fields)}, {Op: Delete}}
}
