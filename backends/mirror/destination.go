package mirror

import (
	"bytes"
	"encoding/json"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/identity"
)

// Whereabouts is what of an Application on the hub says where it runs.
type Whereabouts struct {
	seen  object
	child identity.AgentName // see Placement.Child
}

// WhereaboutsOf reads them. An Application that cannot be read has no destination, and
// so runs nowhere.
func WhereaboutsOf(o backends.Object) Whereabouts {
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
		return Whereabouts{seen: object{key: o.Key}}
	}
	w := Whereabouts{seen: object{key: o.Key, fields: map[string]any{
		"metadata": map[string]any{"labels": view.Metadata.Labels}, "spec": map[string]any{"destination": view.Spec.Destination},
	}}}
	if bytes.Contains(o.Raw, []byte(recordKey)) {
		w.child = childOf(object{fields: map[string]any{"metadata": map[string]any{"annotations": view.Metadata.Annotations}}})
	}
	return w
}

// childOf returns the agent whose child application a mirror on the hub shows; the zero
// name for what is no such mirror, or was released.
func childOf(o object) identity.AgentName {
	rec, ok := recordOf(o)
	if !ok || !isMirror(o) || !rec.Child {
		return identity.AgentName{}
	}
	name, err := identity.ParseAgentName(rec.Agent)
	if err != nil {
		return identity.AgentName{}
	}
	return name
}

// PlacementOf is what of an Application on the hub says whose it is.
func PlacementOf(o backends.Object) Placement { return WhereaboutsOf(o).Placement() }

// Placement is what of it says whose the Application is.
func (w Whereabouts) Placement() Placement {
	destination := w.seen.child("spec", "destination")
	return Placement{Namespace: w.seen.key.Namespace, Name: stringAt(destination, "name"), Server: stringAt(destination, "server"), Child: w.child}
}

// OnSpoke returns the namespace on the agent's spoke of an Application in a namespace of
// the hub, empty for that of the spoke's Argo CD; false when it is none of the link's
// namespaces. w is the zero Whereabouts for one that is not known.
func (r Rules) OnSpoke(namespace string, w Whereabouts) (string, bool) {
	if r.byDestination() && r.showsChild(w) && r.holdsChildren(namespace) {
		return "", true
	}
	return r.onWire(namespace)
}

// Runs reports whether an Application on the hub, in a namespace of the link's, runs on
// the agent's spoke: its destination is the agent, and it is selected, which the mirror of
// a child application need not be.
func (r Rules) Runs(w Whereabouts) bool {
	return r.destined(w.seen) && (r.showsChild(w) || r.selects(w.seen))
}

// showsChild reports whether an Application of the hub shows a child of the agent's.
func (r Rules) showsChild(w Whereabouts) bool { return !w.child.IsZero() && w.child == r.Agent }
