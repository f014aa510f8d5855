package mirror

import (
	"fmt"
	"slices"

	"github.com/argomesh/argomesh/stream"
)

// Whose an object is that lies where a copy would be follows from its marks: the hub
// (principalUIDKey, on a spoke alone) and the agent (record.Agent). What has none of
// them was made by somebody else.

// isCopy reports whether o was written by this link, or by an earlier one of the same
// agent: of the same hub, or of one that the agent had before. A copy that does not name
// its agent, from an earlier release, is of whoever writes it next. The ConfigMaps of
// trust are shared, and so anybody's of the hub.
func (r Rules) isCopy(o object) bool {
	if !hasRecord(o) || !r.ofThisHub(o) && !r.ofFormerHub(o) {
		return false
	}
	if o.key.Kind == stream.ConfigMap {
		return true
	}
	rec, _ := recordOf(o)
	return rec.Agent == r.Agent.String() || rec.Agent == "" && (r.Side == stream.Spoke || o.key.Kind == stream.Application)
}

// ofThisHub reports whether a copy is of the hub of this link. The hub itself is named
// by none of its mirrors; what names one there is a spoke's copy, of another hub.
func (r Rules) ofThisHub(o object) bool { return o.annotation(principalUIDKey) == r.HubUID }

// ofFormerHub reports whether a copy on the spoke is of a hub that the agent had before.
func (r Rules) ofFormerHub(o object) bool {
	return r.Side == stream.Spoke && slices.Contains(r.FormerHubs, o.annotation(principalUIDKey))
}

// othersCopy says whose copy o is when it is not this link's to write or to remove; nil
// when it is, and for an object that is nobody's copy.
func (r Rules) othersCopy(o object) *stream.Refusal {
	rec, _ := recordOf(o)
	hub := o.annotation(principalUIDKey)
	of := func(whose string) *stream.Refusal {
		return &stream.Refusal{
			Kind:    stream.RefusalNotOwned,
			Message: fmt.Sprintf("the %s of that name on the %s is a copy of %s", o.key.Kind, r.Side, whose),
		}
	}
	switch {
	case o.key.Kind == stream.ConfigMap || !hasRecord(o):
		return nil
	case r.isCopy(o) && r.ofFormerHub(o) && !r.Inherits:
		return of("hub " + hub + ", which the agent had before; it becomes this hub's once somebody accepts what is held back for the break of the history")
	case r.isCopy(o):
		return nil
	case !r.ofThisHub(o):
		return of("hub " + hub + ", which alone writes and removes it")
	}
	return of("agent " + rec.Agent)
}

// isOfNeighbour reports whether an object of the spoke is the copy of another agent there, of
// this hub or another: its source is on that hub, and it is not an autonomous agent's to show.
func (r Rules) isOfNeighbour(o object) bool {
	return r.Side == stream.Spoke && o.annotation(principalUIDKey) != "" && hasRecord(o) && !r.isCopy(o)
}

// heldForFormerHub refuses what would remove a copy of a hub that the agent had before.
func (r Rules) heldForFormerHub(current *object) *stream.Refusal {
	if current == nil || !r.isCopy(*current) {
		return nil
	}
	return r.othersCopy(*current)
}

// isMirror reports whether an object of the hub shows one of a spoke, whichever agent's
// that is.
func isMirror(o object) bool { return hasRecord(o) && o.annotation(principalUIDKey) == "" }
