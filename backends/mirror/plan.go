package mirror

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/argomesh/argomesh/stream"
)

// Op is a kind of write.
type Op uint8

const (
	// Create makes an object that is not there.
	Create Op = iota + 1
	// Update replaces the object as it was read.
	Update
	// Delete deletes the object as it was read, or as the Update before left it.
	Delete
)

// Write is one call to the store.
type Write struct {
	Op  Op
	Raw []byte // of Create and Update
}

// Plan returns the writes that make the local object what an event says, in
// order: none when it already is, or when it must be left alone. Each write
// stands on the result of the one before; on a conflict the object is read and
// planned again. A refusal beside writes is the answer once they are done.
// current is nil when there is no object. asked holds the requests that current
// carries on the hub.
func (r Rules) Plan(e stream.Event, key stream.ResourceKey, current *object, asked Requests) ([]Write, *stream.Refusal) {
	switch e.Key.Collection {
	case stream.Statuses:
		return r.planStatus(e, current, asked)
	case stream.Commands:
		return r.planCommand(e, current)
	case stream.Children:
		return r.planChild(e, key, current)
	case stream.Repositories:
		return r.planRepository(e, key, current)
	case stream.Trust:
		return r.planTrust(e, key, current)
	}
	if e.Verb == stream.Delete {
		return r.release(current), nil
	}
	data, err := decode(e.Data)
	if err != nil {
		return nil, invalid("the event's data is not a JSON object")
	}
	if refusal := r.outdated(e, current); refusal != nil {
		return nil, refusal
	}
	if leaving, ok := data["leaving"].([]any); ok && r.Side == stream.Spoke {
		if refusal := r.Policy.operation("cascade"); refusal != nil {
			return nil, refusal
		}
		return r.leave(e, current, leaving), nil
	}
	spec, ok := data["spec"].(map[string]any)
	if !ok {
		return nil, invalid("the event carries no spec")
	}
	if refusal := r.refused(e.Key, key, spec); refusal != nil {
		return nil, refusal
	}
	labels, _ := data["labels"].(map[string]any)
	annotations, _ := data["annotations"].(map[string]any)
	desired := func(base object, old record) object {
		return r.write(base, old, e, r.mapped(e.Key.Collection, spec), mirrored(labels), mirrored(annotations))
	}
	create := func() Write {
		return Write{Op: Create, Raw: encode(desired(newObject(key), record{}).fields)}
	}
	switch {
	case current == nil:
		return []Write{create()}, nil
	case r.takenDown(*current):
		return nil, &stream.Refusal{
			Kind:    stream.RefusalUnavailable,
			Message: "someone on the spoke deletes the Application together with its workloads; it is made anew when it is gone",
		}
	case current.deleting():
		return nil, &stream.Refusal{
			Kind:    stream.RefusalUnavailable,
			Message: fmt.Sprintf("the %s is being deleted on the %s; it is made anew when it is gone", key.Kind, r.Side),
		}
	case r.Side == stream.Hub && !r.isCopy(*current):
		return nil, &stream.Refusal{
			Kind:    stream.RefusalNotOwned,
			Message: fmt.Sprintf("a %s of that name on the hub is not a mirror; rename or remove one of the two", key.Kind),
		}
	case r.recreates(e, *current, annotations):
		return append(r.release(current), create()), nil
	}
	old, _ := recordOf(*current)
	return update(*current, desired(current.clone(), old)), nil
}

// maxName is the longest name of an object (RFC 1123 subdomain).
const maxName = 253

// refused says why an Application or AppProject cannot be stored on this side,
// whatever there is.
func (r Rules) refused(entry stream.EntryKey, key stream.ResourceKey, spec map[string]any) *stream.Refusal {
	switch {
	case len(key.Name) > maxName:
		return invalid(fmt.Sprintf("with the agent's prefix its name on the hub has %d characters, and %d are possible; rename it on the spoke", len(key.Name), maxName))
	case r.Side != stream.Spoke:
		return nil
	case entry.Collection == stream.AppProjects:
		return r.Policy.appProject(entry.Name, spec)
	}
	return r.Policy.application(spec)
}

// update is the write that makes next of current; none when they are the same.
func update(current, next object) []Write {
	raw := encode(next.fields)
	if bytes.Equal(raw, encode(current.fields)) {
		return nil
	}
	return []Write{{Op: Update, Raw: raw}}
}

func newObject(key stream.ResourceKey) object {
	version := "argoproj.io/v1alpha1"
	if key.Kind == stream.Secret || key.Kind == stream.ConfigMap {
		version = "v1"
	}
	return object{key: key, fields: map[string]any{
		"apiVersion": version,
		"kind":       string(key.Kind),
		"metadata":   map[string]any{"namespace": key.Namespace, "name": key.Name},
	}}
}

// created is the record's Created of o, which is about to be written at that
// revision. Histories, and hubs, count their revisions each by itself: a copy that
// was made in an earlier history is older than all of the present one.
func (r Rules) created(o object, old record, revision uint64) uint64 {
	switch {
	case old.Created == 0 || !r.isCopy(o):
		return revision
	case old.History != "" && r.HistoryID != "" && old.History != r.HistoryID:
		return 1
	}
	return old.Created
}

// history is the record's History of o, which is about to be written: while the
// history is not known a copy stays in the one that it was in.
func (r Rules) history(o object, old record) string {
	if r.HistoryID == "" && r.isCopy(o) {
		return old.History
	}
	return r.HistoryID
}

// write puts what the source owns into o, and only that.
func (r Rules) write(o object, old record, e stream.Event, spec, labels, annotations map[string]any) object {
	created, history := r.created(o, old, e.Revision), r.history(o, old)
	replace := func(field string, oldKeys []string, values map[string]any) {
		m := o.child("metadata", field)
		for _, key := range oldKeys {
			delete(m, key)
		}
		for key, value := range values {
			o.ensure("metadata", field)[key] = value
		}
	}
	replace("labels", old.Labels, labels)
	replace("annotations", old.Annotations, annotations)
	if _, wanted := annotations[skipReconcileKey]; old.Releasing && !wanted {
		delete(o.child("metadata", "annotations"), skipReconcileKey) // the release was abandoned
	}
	if field := contentField(o.key.Kind); field == "data" && len(spec) == 0 {
		delete(o.fields, field) // as the API server stores it
	} else {
		o.fields[field] = spec
	}
	o.dropFinalizers(isCascade)
	o.setAnnotation(sourceUIDKey, e.Version.SourceUID)
	if r.Side == stream.Spoke {
		o.setAnnotation(principalUIDKey, r.HubUID)
	}
	rec := record{
		Hash: e.Version.Hash.String(), Revision: e.Revision, Created: created, History: history,
		Labels: sortedKeys(labels), Annotations: sortedKeys(annotations), Child: e.Key.Collection == stream.Children,
	}
	if r.Side == stream.Hub {
		rec.Agent = r.Agent.String()
	}
	r.stamp(o, rec)
	return o
}

// stamp writes the record of what o holds now.
func (r Rules) stamp(o object, rec record) {
	rec.Wrote = stream.HashOf(owned(o, rec)).String()
	o.setAnnotation(recordKey, string(encode(rec)))
}

// leave passes a witnessed cascading deletion on: the copy gets its cascade
// finalizer in the step in which it is deleted.
func (r Rules) leave(e stream.Event, current *object, finalizers []any) []Write {
	switch {
	case current == nil || !r.isCopy(*current):
		return nil // nothing of ours is there: done
	case current.annotation(sourceUIDKey) != e.Version.SourceUID:
		// The copy of an earlier object of that name. Nobody asked for the end of its
		// workloads.
		return r.release(current)
	case current.deleting():
		return nil // the spoke's controller is at work
	}
	next := current.clone()
	wanted := next.finalizers()
	for _, f := range finalizers {
		if s, ok := f.(string); ok && isCascade(s) && !slices.Contains(wanted, s) {
			wanted = append(wanted, s)
		}
	}
	next.setFinalizers(wanted)
	rec, _ := recordOf(next)
	if rec.Releasing {
		delete(next.child("metadata", "annotations"), skipReconcileKey)
	}
	rec.Created, rec.History = r.created(next, rec, e.Revision), r.history(next, rec)
	rec.Hash, rec.Revision, rec.Leaving, rec.Releasing = e.Version.Hash.String(), e.Revision, true, false
	r.stamp(next, rec)
	return []Write{{Op: Update, Raw: encode(next.fields)}, {Op: Delete}}
}

// release takes a copy away and leaves its workloads: no Argo CD finalizer, so
// no cascade and no hook, and no reconciliation in between.
func (r Rules) release(current *object) []Write {
	if current == nil || !r.isCopy(*current) {
		return nil
	}
	rec, _ := recordOf(*current)
	if current.deleting() && rec.Leaving {
		return nil // once witnessed it stays witnessed
	}
	next := current.clone()
	next.dropFinalizers(isArgoCD)
	if next.key.Kind == stream.Application {
		next.setAnnotation(skipReconcileKey, "true")
	}
	rec.Releasing = true
	r.stamp(next, rec)
	return []Write{{Op: Update, Raw: encode(next.fields)}, {Op: Delete}}
}

// takenDown reports whether the spoke's owner deletes a copy together with its
// workloads, which the hub did not ask for. It is his to do.
func (r Rules) takenDown(o object) bool {
	rec, _ := recordOf(o)
	return r.Side == stream.Spoke && o.key.Kind == stream.Application && r.isCopy(o) && o.cascades() && !rec.Leaving
}

func invalid(message string) *stream.Refusal {
	return &stream.Refusal{Kind: stream.RefusalInvalid, Message: message}
}
