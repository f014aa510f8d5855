package mirror

import (
	"slices"
	"time"

	"github.com/argomesh/argomesh/stream"
)

// maxFound is the largest of what is kept of an object, in bytes.
const maxFound = 256 << 10

// found is what of an object was there before it was adopted: all that a copy could
// overwrite. As JSON it is what a keeper keeps.
type found struct {
	Labels      map[string]any `json:"labels,omitempty"`
	Annotations map[string]any `json:"annotations,omitempty"`
	Finalizers  []string       `json:"finalizers,omitempty"`
	// Content is the spec, or the data of a Secret.
	Content any `json:"content,omitempty"`

	uid string // of the object
	// keptUID and keptVersion are those of what is kept, and lost says that nothing is, or
	// nothing that could be read.
	keptUID, keptVersion string
	lost                 bool
}

func foundOf(o object) found {
	return found{
		Labels: mirrored(o.child("metadata", "labels")), Annotations: mirrored(o.child("metadata", "annotations")),
		Finalizers: o.finalizers(), Content: o.fields[contentField(o.key.Kind)],
	}
}

// read takes what a keeper kept, and reports whether it is that.
func (f *found) read(kept string) bool {
	fields, err := decode([]byte(kept))
	if err != nil {
		return false // somebody damaged it
	}
	o := object{fields: fields}
	f.Content, f.Labels, f.Annotations = fields["content"], o.child("labels"), o.child("annotations")
	list, _ := fields["finalizers"].([]any)
	for _, finalizer := range list {
		if s, ok := finalizer.(string); ok {
			f.Finalizers = append(f.Finalizers, s)
		}
	}
	return true
}

// returnedKey is the annotation, and returnedCondition the condition of an Application,
// that tells the owner of an object that it is his again, and as what. Both stay until he
// removes them.
const (
	returnedKey       = ownPrefix + "returned"
	returnedCondition = "ArgomeshReturned"
)

func isReturnedCondition(c any) bool {
	m, _ := c.(map[string]any)
	return m["type"] == returnedCondition
}

// letGo ends a copy and leaves its workloads: what we made goes, and what was adopted is
// given back.
func (r Rules) letGo(current *object) ([]Write, *stream.Refusal) {
	if current == nil || !r.isCopy(*current) {
		return nil, nil
	}
	if rec, _ := recordOf(*current); rec.Adopted == "" || current.deleting() {
		return r.release(current), nil // its owner deletes what was his
	}
	return r.giveBack(*current)
}

// giveBack makes of an adopted copy what was found, as far as it is kept. An Application
// is taken out of reconciliation before, and is given back when Argo CD has ended what it
// had begun; it comes back without automated synchronization and without an operation,
// since a sync of what was found could prune what runs now.
func (r Rules) giveBack(current object) ([]Write, *stream.Refusal) {
	rec, _ := recordOf(current)
	if current.key.Kind == stream.Application {
		next := current.clone()
		if !r.quieten(next, current, &rec, rec.Releasing && rec.Quiet != nil) {
			rec.Releasing = true
			r.stamp(next, rec)
			return update(current, next), &returning
		}
	}
	if current.found == nil || current.found.uid != rec.Adopted {
		return []Write{{Op: Recall}}, nil
	}
	next, note := r.asFound(current, rec)
	return []Write{
		{Op: Update, Raw: encode(next.fields)},
		{Op: Forget, Note: note},
	}, nil
}

// returning is the answer to the end of an adopted Application that waits.
var returning = stream.Refusal{
	Kind:    stream.RefusalUnavailable,
	Message: "it was adopted, and is given back when Argo CD has ended what it began before",
}

// asFound is an adopted copy as it was found, and what its owner is told.
func (r Rules) asFound(current object, rec record) (next object, note string) {
	was := current.found
	next = current.clone()
	putBack(next, "labels", rec.Labels, was.Labels)
	putBack(next, "annotations", append(slices.Clone(rec.Annotations), skipReconcileKey), was.Annotations)
	for _, key := range sortedKeys(next.child("metadata", "annotations")) {
		if isOurs(key) {
			delete(next.child("metadata", "annotations"), key)
		}
	}
	next.unmark()
	field := contentField(current.key.Kind)
	switch {
	case !was.lost && was.Content != nil:
		next.fields[field] = was.Content
	case !was.lost || current.key.Kind == stream.Secret:
		delete(next.fields, field)
	case current.key.Kind == stream.AppProject:
		delete(next.child("spec"), "destinations")
	}
	note = "agent " + r.Agent.String() + " has given it back as it was before the agent adopted it"
	if was.lost {
		note = "agent " + r.Agent.String() + " has given it back, but what it was before is lost: " + map[stream.Kind]string{
			stream.Application: "its spec is the hub's", stream.AppProject: "it is without destinations", stream.Secret: "it is without data",
		}[current.key.Kind]
	}
	if current.key.Kind != stream.Application {
		next.setAnnotation(returnedKey, note)
		return next, note
	}
	next.dropFinalizers(isArgoCD)
	next.setFinalizers(append(next.finalizers(), slices.DeleteFunc(slices.Clone(was.Finalizers), func(f string) bool { return !isArgoCD(f) })...))
	delete(next.fields, "operation")
	if disarm(next) {
		note += ", but without automated synchronization, which could prune what runs now: look at the difference, and switch it on again"
	}
	status := next.ensure("status")
	setConditions(status, append(slices.DeleteFunc(conditions(status), isReturnedCondition), map[string]any{
		"type": returnedCondition, "message": note, "lastTransitionTime": r.now.UTC().Format(time.RFC3339),
	}))
	return next, note
}

// putBack gives the labels, or annotations, that a copy had from its source the values that
// were found, or removes them. What others set since stays.
func putBack(o object, field string, keys []string, was map[string]any) {
	for _, key := range keys {
		delete(o.child("metadata", field), key)
		if value, there := was[key]; there {
			o.ensure("metadata", field)[key] = value
		}
	}
}

// disarm takes the automated synchronization from an Application and reports whether
// there was any.
func disarm(o object) bool {
	policy := o.child("spec", "syncPolicy")
	if policy["automated"] == nil {
		return false
	}
	delete(policy, "automated")
	if len(policy) == 0 {
		delete(o.child("spec"), "syncPolicy")
	}
	return true
}
