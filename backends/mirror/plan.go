package mirror

import (
	"bytes"
	"fmt"

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
	// Keep keeps what was found in the object as it was read.
	Keep
	// Recall reads what was kept of it; with that the plan is made again.
	Recall
	// Forget removes what was recalled.
	Forget
	// Look reads the object itself, not from a cache; with that the plan is made again.
	Look
	// Confirm asks whether this process is still the one that may write; if so the plan is
	// made again.
	Confirm
)

// Write is one call to the store.
type Write struct {
	Op   Op
	Raw  []byte // of Create, Update and Keep
	Note string // of Forget: what people are told
	// Strict lets Create and Update fail where the API server would drop a field.
	Strict bool
	// Again says of a Create, the last write of its plan, that the plan is made again with
	// what it made.
	Again bool
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
		return r.gone(e, current)
	}
	data, refusal := contentOf(e, "the event's data")
	if refusal != nil {
		return nil, refusal
	}
	if refusal := r.outdated(e, current); refusal != nil {
		return nil, refusal
	}
	if _, leaving := data["leaving"].([]any); leaving && r.Side == stream.Spoke {
		if refusal := r.Policy.operation("cascade"); refusal != nil {
			return nil, refusal
		}
		if refusal := r.heldForFormerHub(current); refusal != nil {
			return nil, refusal
		}
		return r.leave(e, current, data)
	}
	spec, ok := data["spec"].(map[string]any)
	if !ok {
		return nil, invalid("the event carries no spec")
	}
	if refusal := r.notOurs(key); refusal != nil {
		return nil, refusal
	}
	var missing []string
	switch refusal := r.refused(e.Key, key, spec); {
	case refusal == nil:
	case refusal.Kind == stream.RefusalDenied && r.keeps(e, current):
		spec, missing = r.Policy.Bounded(e.Key.Name, spec)
	default:
		return nil, refusal
	}
	if e.Key.Collection == stream.Applications {
		if refusal := r.mayName(spec); refusal != nil {
			return nil, refusal
		}
	}
	if refusal := r.takes(key, current); refusal != nil {
		return nil, refusal
	}
	spec = r.mapped(e.Key, spec)
	dropped, misfit := r.fit(key.Kind, spec)
	if misfit != nil && (current == nil || r.isCopy(*current)) { // of what is not ours, that it is not counts first
		return nil, misfit
	}
	labels, _ := data["labels"].(map[string]any)
	annotations, _ := data["annotations"].(map[string]any)
	desired := func(base object, old record) object {
		o := r.write(base, old, e, spec, mirrored(labels), mirrored(annotations))
		r.shorten(o, dropped, missing)
		return o
	}
	create := func() Write { return r.create(desired(newObject(key), record{})) }
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
	case r.othersCopy(*current) != nil:
		return nil, r.othersCopy(*current)
	case !r.isCopy(*current):
		if refusal := r.adoption(*current); refusal != nil {
			return nil, refusal
		}
		if misfit != nil {
			return nil, misfit
		}
		return strictly(adopt(*current, desired(current.clone(), record{Adopted: current.uid()}))), nil
	case r.recreates(e, *current, annotations):
		return append(r.release(current), create()), nil
	case r.unconfirmed(*current):
		return []Write{{Op: Confirm}}, nil
	}
	old, _ := recordOf(*current)
	return strictly(update(*current, desired(current.clone(), old))), nil
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
		return r.Policy.admits(entry.Name, spec)
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
	case old.Created == 0 || !r.isCopy(o) || !r.ofThisHub(o):
		return revision
	case old.History != "" && r.HistoryID != "" && old.History != r.HistoryID:
		return 1
	}
	return old.Created
}

// history is the record's History of o, which is about to be written: while the
// history is not known a copy stays in the one that it was in.
func (r Rules) history(o object, old record) string {
	if r.HistoryID == "" && r.isCopy(o) && r.ofThisHub(o) {
		return old.History
	}
	return r.HistoryID
}

// write puts what the source owns into o, and only that.
func (r Rules) write(o object, old record, e stream.Event, spec, labels, annotations map[string]any) object {
	created, history := r.created(o, old, e.Revision), r.history(o, old)
	if r.Side == stream.Hub && o.key.Kind == stream.Application {
		typedForm(spec)
	}
	annotations = r.admittedAnnotations(annotations)
	replaceKeys(o, "labels", old.Labels, labels)
	replaceKeys(o, "annotations", old.Annotations, annotations)
	resume(o, old, annotations) // the release, or the deletion, was abandoned
	if field := contentField(o.key.Kind); field == "data" && len(spec) == 0 {
		delete(o.fields, field) // as the API server stores it
	} else {
		o.fields[field] = spec
	}
	o.dropFinalizers(isCascade)
	o.setAnnotation(sourceUIDKey, e.Version.SourceUID)
	if r.Side == stream.Spoke {
		o.setAnnotation(principalUIDKey, r.HubUID)
	} else if r.Hub != "" {
		o.setAnnotation(hubKey, r.Hub)
	}
	rec := record{
		Hash: e.Version.Hash.String(), Revision: e.Revision, Created: created, History: history,
		Labels: sortedKeys(labels), Annotations: sortedKeys(annotations), Child: e.Key.Collection == stream.Children,
		Agent: r.Agent.String(), Adopted: old.Adopted,
	}
	r.shape(&rec, e)
	r.stamp(o, rec)
	return o
}

// stamp writes the record of what o holds now.
func (r Rules) stamp(o object, rec record) {
	rec.Wrote = stream.HashOf(owned(o, rec)).String()
	o.setAnnotation(recordKey, string(encode(rec)))
}

// gone is what becomes of a copy whose source has nothing.
func (r Rules) gone(e stream.Event, current *object) ([]Write, *stream.Refusal) {
	switch refusal := r.heldForFormerHub(current); {
	case refusal != nil:
		return nil, refusal
	case e.GiveUp && e.Key.Collection == stream.AppProjects:
		return r.giveUp(current)
	case r.needed == forCascade:
		return nil, &stays
	}
	if refusal := r.spares(e, current); refusal != nil {
		return nil, refusal
	}
	if r.needed == forCopy && current != nil && r.isCopy(*current) && !current.deleting() {
		return withhold(*current), &permitsNothing
	}
	return r.letGo(current)
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
