package mapping

import (
	"bytes"
	"encoding/json"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/identity"
)

// Destination is what of an Application on the hub says where it runs.
type Destination struct {
	Seen  object.Object
	child identity.AgentName // see Placement.Child
}

// DestinationOf reads them. An Application that cannot be read has no destination, and
// so runs nowhere.
func DestinationOf(o backends.Object) Destination {
	var view struct {
		Metadata struct {
			Labels      map[string]any `json:"labels"`
			Annotations map[string]any `json:"annotations"`
		} `json:"metadata"`
		Spec struct {
			Destination map[string]any `json:"destination"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(o.Raw, &view); err != nil {
		return Destination{Seen: object.Object{Key: o.Key}}
	}
	w := Destination{Seen: object.Object{Key: o.Key, Fields: map[string]any{
		"metadata": map[string]any{"labels": view.Metadata.Labels},
		"spec":     map[string]any{"destination": view.Spec.Destination},
	}}}
	if bytes.Contains(o.Raw, []byte(object.RecordKey)) {
		metadata := map[string]any{"annotations": view.Metadata.Annotations}
		w.child = record.ChildOf(object.Object{Fields: map[string]any{"metadata": metadata}})
	}
	return w
}

// PlacementOf is what of an Application on the hub says whose it is.
func PlacementOf(o backends.Object) Placement { return DestinationOf(o).Placement() }

// Placement is what of it says whose the Application is.
func (w Destination) Placement() Placement {
	destination := w.Seen.Child("spec", "destination")
	return Placement{Namespace: w.Seen.Key.Namespace, Name: object.StringAt(destination, "name"),
		Server: object.StringAt(destination, "server"), Child: w.child}
}

// OnSpoke returns the namespace on the agent's spoke of an Application in a namespace of
// the hub, empty for that of the spoke's Argo CD; false when it is none of the link's
// namespaces. w is the zero Destination for one that is not known.
func (m Map) OnSpoke(namespace string, w Destination) (string, bool) {
	if m.Divided() && m.showsChild(w) && m.holdsChildren(namespace) {
		return "", true
	}
	return m.OnWire(namespace)
}

// Runs reports whether an Application on the hub, in a namespace of the link's, runs on
// the agent's spoke: its destination is the agent, and it is selected, which the mirror of
// a child application need not be.
func (m Map) Runs(w Destination) bool {
	return m.Destined(w.Seen) && (m.showsChild(w) || m.Selects(w.Seen))
}

// showsChild reports whether an Application of the hub shows a child of the agent's.
func (m Map) showsChild(w Destination) bool { return !w.child.IsZero() && w.child == m.Agent }
