package copies

import (
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/stream"
)

// SpokeLocation is where on a spoke an Application of the hub is.
type SpokeLocation struct {
	// Namespace is that on the spoke; empty for the one of the spoke's Argo CD.
	Namespace string
	// Busy says why the Application must not go anywhere now; empty when it may.
	Busy string
}

// LocationOnSpoke returns where an Application of the hub, as decoded JSON, is on the spoke of
// the managed agent of these rules; false for one that is not the agent's, or is not sent.
func (m Marks) LocationOnSpoke(app map[string]any) (SpokeLocation, bool) {
	o := ObjectOfHub(app)
	keys := m.Keys(o.Key)
	if len(keys) == 0 || !m.Sendable(o) {
		return SpokeLocation{}, false
	}
	at := SpokeLocation{Namespace: keys[0].Namespace}
	switch {
	case o.Deleting():
		at.Busy = "it is being deleted"
	case o.Child("operation") != nil:
		at.Busy = "an operation of it is under way"
	}
	return at, true
}

// ObjectOfHub is an Application of the hub as decoded JSON.
func ObjectOfHub(app map[string]any) object.Object {
	metadata, _ := app["metadata"].(map[string]any)
	return object.Object{Key: stream.ResourceKey{
		Kind: stream.Application, Namespace: object.StringAt(metadata, "namespace"), Name: object.StringAt(metadata, "name"),
	}, Fields: app}
}
