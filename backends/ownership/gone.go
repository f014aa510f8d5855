package ownership

import (
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// giveUp takes our marks off a copy and leaves it to the owner of its side; what was
// adopted is given back.
func giveUp(r Rules, current *object.Object) ([]Write, *stream.Refusal) {
	if current == nil || !r.IsCopy(*current) {
		return nil, nil
	}
	if rec, _ := record.Of(*current); rec.Adopted != "" {
		return endCopy(r, current)
	}
	next := current.Clone()
	next.Unmark()
	return update(*current, next), nil
}

// stays is the answer of a spoke to the release of an AppProject that one of its going
// copies names.
var stays = stream.Refusal{
	Kind:    stream.RefusalUnavailable,
	Message: "an Application on the spoke that is being deleted names the AppProject; it goes when that is gone",
}

// permitsNothing is the answer of a spoke to the release of an AppProject that copies name
// which are not going. The hub may not know of them: its Application may name another
// project by now, that does not admit it.
var permitsNothing = stream.Refusal{
	Kind:    stream.RefusalUnavailable,
	Message: "an Application of the hub on the spoke names the AppProject; it permits nothing there, and goes when that is gone",
}

// withhold takes all destinations from a copy of an AppProject. That does not count as what
// the hub sent, which so sends it again if it is to be there again.
func withhold(current object.Object) []Write {
	if destinations, is := current.Child("spec")["destinations"].([]any); is && len(destinations) == 0 {
		return nil
	}
	next := current.Clone()
	next.Ensure("spec")["destinations"] = []any{}
	return update(current, next)
}

// planGone is what becomes of a copy whose source has nothing.
func planGone(r Rules, e stream.Event, current *object.Object) ([]Write, *stream.Refusal) {
	switch refusal := r.RefuseRemoval(current); {
	case refusal != nil:
		return nil, refusal
	case e.GiveUp && e.Key.Collection == stream.AppProjects:
		return giveUp(r, current)
	case r.Needed == ForCascade:
		return nil, &stays
	}
	if refusal := r.OtherThanDeleted(e, current); refusal != nil {
		return nil, refusal
	}
	if r.Needed == ForCopy && current != nil && r.IsCopy(*current) && !current.Deleting() {
		return withhold(*current), &permitsNothing
	}
	return endCopy(r, current)
}
