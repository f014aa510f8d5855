package mirror

import (
	"github.com/argomesh/argomesh/backends"
)

// PlacementOf is what of an Application on the hub says whose it is.
func PlacementOf(o backends.Object) Placement { return placementOf(o) }

// OnSpoke returns the namespace on the agent's spoke of an Application on the hub, empty
// for that of the spoke's Argo CD; false when it is none of the link's namespaces.
func (r Rules) OnSpoke(namespace string) (string, bool) { return r.onWire(namespace) }

// Runs reports whether an Application on the hub, in a namespace of the link's, runs on
// the agent's spoke: its destination is the agent, and it is selected. What cannot be
// read runs nowhere.
func (r Rules) Runs(stored backends.Object) bool {
	if p := placementOf(stored); !r.isDestination(p.Name, p.Server) {
		return false
	}
	if r.Selector == nil {
		return true
	}
	o, err := parseObject(stored)
	return err == nil && r.selects(o)
}
