package mirror

import "github.com/argomesh/argomesh/stream"

// Place is where on a spoke an Application of the hub is.
type Place struct {
	// Namespace is that on the spoke; empty for the one of the spoke's Argo CD.
	Namespace string
	// Busy says why the Application must not go anywhere now; empty when it may.
	Busy string
}

// PlaceOnSpoke returns where an Application of the hub, as decoded JSON, is on the spoke of
// the managed agent of these rules; false for one that is not the agent's, or is not sent.
func (r Rules) PlaceOnSpoke(app map[string]any) (Place, bool) {
	o := objectOfHub(app)
	keys := r.Keys(o.key)
	if len(keys) == 0 || !r.sendable(o) {
		return Place{}, false
	}
	at := Place{Namespace: keys[0].Namespace}
	switch {
	case o.deleting():
		at.Busy = "it is being deleted"
	case o.child("operation") != nil:
		at.Busy = "an operation of it is under way"
	}
	return at, true
}

// objectOfHub is an Application of the hub as decoded JSON.
func objectOfHub(app map[string]any) object {
	metadata, _ := app["metadata"].(map[string]any)
	return object{key: stream.ResourceKey{
		Kind: stream.Application, Namespace: stringAt(metadata, "namespace"), Name: stringAt(metadata, "name"),
	}, fields: app}
}
