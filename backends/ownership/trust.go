package ownership

import (
	"maps"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// trustContent is what a hub sends of one of the ConfigMaps: its items and nothing else.
func trustContent(_ Rules, o object.Object, _ operations.Requests) (data map[string]any, leaving bool) {
	sent := map[string]any{}
	for id, value := range itemsOf(o.Key.Name, o.Child("data")) {
		sent[id] = value
	}
	return map[string]any{"items": sent}, false
}

// planTrust makes the items of a ConfigMap of the spoke those of the hub, and takes
// away those that it put there before. An item that was there already, the same, was
// not put: it stays when the hub's goes.
func planTrust(r Rules, e stream.Event, key stream.ResourceKey, current *object.Object,
	_ operations.Requests) ([]Write, *stream.Refusal) {
	if e.Verb == stream.Delete {
		return withdraw(r, current), nil
	}
	content, refusal := object.ContentOf(e, "the event's data")
	if refusal != nil {
		return nil, refusal
	}
	sent, ok := content["items"].(map[string]any)
	if !ok {
		return nil, stream.Invalid("the event carries no items")
	}
	if refusal := r.Policy.ConfigMap(key.Name); refusal != nil {
		return nil, refusal
	}
	if refusal := r.Outdated(e, current); refusal != nil {
		return nil, refusal
	}
	desired, refusal := itemsSent(key.Name, sent)
	if refusal != nil {
		return nil, refusal
	}
	next, old := object.New(key), record.Record{}
	switch {
	case current == nil:
	case current.Deleting():
		return nil, &stream.Refusal{
			Kind:    stream.RefusalUnavailable,
			Message: "the ConfigMap is being deleted on the spoke; it is created again when it is gone",
		}
	default:
		next = current.Clone()
		old, _ = record.Of(next)
	}
	created, history := r.CreatedAt(next, old, e.Revision), r.HistoryOf(next, old)
	have := itemsOf(key.Name, next.Child("data"))
	found := itemsFound(old, have, desired)
	away := slices.DeleteFunc(old.Put(), func(id string) bool { _, kept := desired[id]; return kept })
	desired.change(next, away)
	next.SetAnnotation(object.SourceUIDKey, e.Version.SourceUID)
	next.SetAnnotation(object.PrincipalUIDKey, r.HubUID)
	stamp(next, record.Record{
		Hash: e.Version.Hash.String(), Revision: e.Revision, Created: created, History: history,
		Items: slices.Sorted(maps.Keys(desired)), Found: found,
	})
	if current == nil {
		return []Write{{Op: Create, Raw: object.Encode(next.Fields)}}, nil
	}
	return update(*current, next), nil
}

// itemsSent are the items of an event.
func itemsSent(name string, sent map[string]any) (items, *stream.Refusal) {
	desired := items{}
	for id, value := range sent {
		s, text := value.(string)
		if !text || name == object.KnownHostsConfigMap && (strings.ContainsAny(s, "\r\n") || lineID(s) != id) {
			return nil, stream.Invalid("an item is not what its id says")
		}
		desired[id] = s
	}
	return desired, nil
}

// itemsFound are the ids of the items that are there already, the same, and that we did not
// put there, sorted.
func itemsFound(old record.Record, have, desired items) []string {
	var found []string
	ours := map[string]bool{}
	for _, id := range old.Put() {
		ours[id] = true
	}
	for id, value := range desired {
		theirs, there := have[id]
		if there && theirs == value && !ours[id] {
			found = append(found, id)
		}
	}
	slices.Sort(found)
	return found
}

// withdraw takes away what we put into a ConfigMap, and our marks. The ConfigMap
// itself belongs to the spoke's Argo CD, no matter who made it.
func withdraw(r Rules, current *object.Object) []Write {
	if current == nil || !r.IsCopy(*current) {
		return nil
	}
	next := current.Clone()
	rec, _ := record.Of(next)
	items{}.change(next, rec.Put())
	next.Unmark()
	return update(*current, next)
}
