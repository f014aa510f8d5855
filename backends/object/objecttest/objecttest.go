// Package objecttest makes objects and events for tests.
package objecttest

import (
	"testing"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/stream"
)

// Object returns an object with the metadata and the other fields given,
// with the form that decoded JSON has.
func Object(t testing.TB, key stream.ResourceKey, meta, rest map[string]any) object.Object {
	t.Helper()
	metadata := map[string]any{"namespace": key.Namespace, "name": key.Name, "uid": "uid-1", "resourceVersion": "7"}
	for name, value := range meta {
		metadata[name] = value
	}
	fields := map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": string(key.Kind), "metadata": metadata}
	for name, value := range rest {
		fields[name] = value
	}
	decoded, err := object.Decode(object.Encode(fields))
	if err != nil {
		t.Fatal(err)
	}
	return object.Object{Key: key, Fields: decoded}
}

// Apply returns an event that asks for data.
func Apply(c stream.Collection, uid string, revision uint64, data map[string]any) stream.Event {
	e := stream.Event{
		ID: "c.1", Key: stream.EntryKey{Collection: c, Name: "guestbook"}, Verb: stream.Apply, Revision: revision,
		Data: object.Encode(data),
	}
	e.Version = stream.Version{SourceUID: uid, Hash: stream.HashOf(e.Data)}
	return e
}

// Removal returns the event that says that there is nothing.
func Removal(c stream.Collection) stream.Event {
	return stream.Event{ID: "c.1", Key: stream.EntryKey{Collection: c, Name: "guestbook"}, Verb: stream.Delete}
}
