// Package division tells the links of agents whose the Applications of the hub are.
package division

import (
	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/backends/shares"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// Division tells the links whose the hub's Applications are. What decides is
// fleet.Registry.OwnerOf.
type Division struct {
	registry *fleet.Registry
	store    backends.Store
	// partition is nil unless a namespace alone does not tell.
	partition *shares.Partition
	// assigned is what Assign last went by, of its caller's goroutine.
	assigned assignment
}

// assignment is what a pass over all Applications follows from.
type assignment struct {
	made      bool
	filled    bool   // the store had synced
	divisions uint64 // of the registry
}

// New returns a division that has looked at nothing yet.
func New(registry *fleet.Registry, store backends.Store) *Division {
	o := &Division{registry: registry, store: store}
	if registry.Mapping.ByDestination {
		o.partition = shares.New(store)
	}
	return o
}

// Assign looks again at who owns what, if that may have changed, after the registry has
// changed, or the store has synced, and after the links of agents that went have ended: none may take what
// it no longer owns for gone. It returns the agents that are to look at Applications;
// none before the links have begun, which wait for the shares, since each begins with a
// look at all that it has.
func (o *Division) Assign() map[identity.AgentName][]stream.ResourceKey {
	if o.partition == nil {
		return nil
	}
	// The token in the status of each Agent changes every minute, and a fleet has many
	// Agents and Applications. A division that comes after it was counted is in the next.
	now := assignment{made: true, divisions: o.registry.Divisions()}
	select {
	case <-o.store.Synced():
		now.filled = true
	default:
	}
	if now == o.assigned {
		return nil
	}
	began := o.Known()
	o.assigned = now
	owner := o.registry.OwnerOf()
	moved := o.partition.Assign(func(p mapping.Placement) identity.AgentName {
		name, _ := owner(p)
		return name
	})
	if !began {
		return nil
	}
	return moved
}

// Known reports whether it is known whose each Application is: by destination, from
// when the links begin. Before, each is no one's.
func (o *Division) Known() bool {
	if o.partition == nil {
		return true
	}
	select {
	case <-o.partition.Synced():
		return true
	default:
		return false
	}
}

// Changed returns the agents that are to look at an Application.
func (o *Division) Changed(key stream.ResourceKey) []identity.AgentName {
	if o.partition != nil {
		return o.partition.Changed(key)
	}
	if name, owned := o.registry.Owner(fleet.Placement{Namespace: key.Namespace}); owned {
		return []identity.AgentName{name}
	}
	return nil
}

// OwnerOf returns the agent whose an Application was, as it was last.
func (o *Division) OwnerOf(last backends.Object) (identity.AgentName, bool) {
	if o.partition != nil {
		name := o.partition.OwnerOf(last)
		return name, !name.IsZero()
	}
	return o.registry.Owner(fleet.Placement{Namespace: last.Key.Namespace})
}

// Of is the hub as an agent's link sees it. By destination an agent sees its own
// Applications alone; those of a namespace are told by their keys.
func (o *Division) Of(r ownership.Rules) backends.Store {
	if o.partition == nil || !r.ByDestination {
		return o.store
	}
	return o.partition.For(r.Agent)
}

// List are the Applications that a link may concern.
func (o *Division) List(r ownership.Rules) []backends.Object {
	if r.ByDestination {
		return o.Of(r).List(stream.Application, "")
	}
	var objects []backends.Object
	for _, p := range r.Pairs {
		objects = append(objects, o.store.List(stream.Application, p.Hub)...)
	}
	return objects
}
