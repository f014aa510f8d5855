package mirror

import (
	"encoding/json"

	"github.com/argomesh/argomesh/backends"
)

// Whereabouts is what of an Application on the hub says where it runs.
type Whereabouts struct{ seen object }

// WhereaboutsOf reads them. An Application that cannot be read has no destination, and
// so runs nowhere.
func WhereaboutsOf(o backends.Object) Whereabouts {
	var view struct {
		Metadata struct {
			Labels map[string]any `json:"labels"`
		} `json:"metadata"`
		Spec struct {
			Destination map[string]any `json:"destination"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(o.Raw, &view); err != nil {
		return Whereabouts{object{key: o.Key}}
	}
	return Whereabouts{object{key: o.Key, fields: map[string]any{
		"metadata": map[string]any{"labels": view.Metadata.Labels}, "spec": map[string]any{"destination": view.Spec.Destination},
	}}}
}

// PlacementOf is what of an Application on the hub says whose it is.
func PlacementOf(o backends.Object) Placement { return WhereaboutsOf(o).Placement() }

// Placement is what of it says whose the Application is.
func (w Whereabouts) Placement() Placement {
	destination := w.seen.child("spec", "destination")
	return Placement{Namespace: w.seen.key.Namespace, Name: stringAt(destination, "name"), Server: stringAt(destination, "server")}
}

// OnSpoke returns the namespace on the agent's spoke of an Application on the hub, empty
// for that of the spoke's Argo CD; false when it is none of the link's namespaces.
func (r Rules) OnSpoke(namespace string) (string, bool) { return r.onWire(namespace) }

// Runs reports whether an Application on the hub, in a namespace of the link's, runs on
// the agent's spoke: its destination is the agent, and it is selected.
func (r Rules) Runs(w Whereabouts) bool { return r.destined(w.seen) && r.selects(w.seen) }
