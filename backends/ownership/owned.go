package ownership

import (
	"maps"
	"slices"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// owned is what the source owns of a copy, in canonical form: drift is a change
// of it.
func owned(o object.Object, rec record.Record) []byte {
	subset := func(m map[string]any, keys []string) map[string]any {
		out := map[string]any{}
		for _, key := range keys {
			if value, ok := m[key]; ok {
				out[key] = value
			}
		}
		return out
	}
	form := map[string]any{
		"labels":                        subset(o.Child("metadata", "labels"), rec.Labels),
		"annotations":                   subset(o.Child("metadata", "annotations"), rec.Annotations),
		object.ContentField(o.Key.Kind): o.Fields[object.ContentField(o.Key.Kind)],
		// A copy has no cascade finalizer until its deletion was witnessed.
		"cascade":   slices.ContainsFunc(o.Finalizers(), object.IsCascade),
		"releasing": rec.Releasing,
	}
	switch {
	case rec.Child:
		form["status"] = shown(o)
	case o.Key.Kind == stream.ConfigMap:
		form["data"] = ownedTrust(o, rec)
	}
	return object.Encode(form)
}

// canonical is what a source sends of an object it owns.
func canonical(o object.Object, spec any) map[string]any {
	return map[string]any{
		"labels":      object.Mirrored(o.Child("metadata", "labels")),
		"annotations": object.Mirrored(o.Child("metadata", "annotations")),
		"spec":        spec,
	}
}

// shown is the status of a child's mirror as far as it must be what was written: the
// end of an operation that we refused is ours. Until it notes what the spoke shows, the
// mirror is sent again, so that what the spoke runs since can be told: see operations.IsFromBefore.
func shown(o object.Object) map[string]any {
	status := statusOf(o)
	state, _ := status["operationState"].(map[string]any)
	operation, _ := state["operation"].(map[string]any)
	if operations.NeverRan(state) && operations.Info(operation, object.BeforeInfo) != "" {
		delete(status, "operationState")
	}
	return status
}

// statusOf is an Application's status, less what we add to it on the hub. Its values
// are the Application's own.
func statusOf(o object.Object) map[string]any {
	status := maps.Clone(o.Child("status"))
	if status == nil {
		status = map[string]any{}
	}
	object.SetConditions(status, slices.DeleteFunc(object.Conditions(status), object.IsOwnCondition))
	return status
}

// statusForm is the canonical form of an Application's status, and of the
// operation that was started on the spoke, if there is one.
func statusForm(o object.Object, started map[string]any) map[string]any {
	form := map[string]any{"status": statusOf(o)}
	if started != nil {
		form["operation"] = started
	}
	return form
}

// ownedTrust is what the source owns of the copy: the items that it sent.
func ownedTrust(o object.Object, rec record.Record) map[string]any {
	have, out := itemsOf(o.Key.Name, o.Child("data")), map[string]any{}
	for _, id := range rec.Items {
		if value, ok := have[id]; ok {
			out[id] = value
		}
	}
	return out
}

// stamp writes the record of what o holds now.
func stamp(o object.Object, rec record.Record) {
	rec.Wrote = stream.HashOf(owned(o, rec)).String()
	o.SetAnnotation(object.RecordKey, string(object.Encode(rec)))
}

// replaceKeys puts labels or annotations of the source in the place of those that it
// had before.
func replaceKeys(o object.Object, field string, before []string, values map[string]any) {
	m := o.Child("metadata", field)
	for _, key := range before {
		delete(m, key)
	}
	for key, value := range values {
		o.Ensure("metadata", field)[key] = value
	}
}
