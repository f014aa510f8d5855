package copies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// Whose an object is that lies where a copy would be follows from its marks: the hub
// (object.PrincipalUIDKey, on a spoke alone) and the agent (record.Agent). What has none of
// them was made by someone else.

// IsCopy reports whether o was written by this link, or by an earlier one of the same
// agent: of the same hub, or of one that the agent had before. A copy that does not name
// its agent, from an earlier release, is of anyone who writes it next. The ConfigMaps of
// trust are shared, and so anyone's of the hub.
func (m Marks) IsCopy(o object.Object) bool {
	if !record.Has(o) || !m.OfThisHub(o) && !m.ofFormerHub(o) {
		return false
	}
	if o.Key.Kind == stream.ConfigMap {
		return true
	}
	rec, _ := record.Of(o)
	return rec.Agent == m.Agent.String() || rec.Agent == "" && (m.Side == stream.Spoke || o.Key.Kind == stream.Application)
}

// OfThisHub reports whether a copy is of the hub of this link. The hub itself is named
// by none of its mirrors; what names one there is a spoke's copy, of another hub.
func (m Marks) OfThisHub(o object.Object) bool {
	return o.Annotation(object.PrincipalUIDKey) == m.HubUID
}

// ofFormerHub reports whether a copy on the spoke is of a hub that the agent had before.
func (m Marks) ofFormerHub(o object.Object) bool {
	return m.Side == stream.Spoke && slices.Contains(m.FormerHubs, o.Annotation(object.PrincipalUIDKey))
}

// OthersCopy says whose copy o is when it is not this link's to write or to remove; nil
// when it is, and for an object that is no one's copy.
func (m Marks) OthersCopy(o object.Object) *stream.Refusal {
	rec, _ := record.Of(o)
	hub := o.Annotation(object.PrincipalUIDKey)
	of := func(whose string) *stream.Refusal {
		return &stream.Refusal{
			Kind:    stream.RefusalNotOwned,
			Message: fmt.Sprintf("the %s of that name on the %s is a copy of %s", o.Key.Kind, m.Side, whose),
		}
	}
	switch {
	case o.Key.Kind == stream.ConfigMap || !record.Has(o):
		return nil
	case m.IsCopy(o) && m.ofFormerHub(o) && !m.Inherits:
		return of("hub " + hub +
			", which the agent had before; it becomes this hub's once the deletions held for the broken history are accepted")
	case m.IsCopy(o):
		return nil
	case !m.OfThisHub(o):
		return of("hub " + hub + ", which alone writes and removes it")
	}
	return of("agent " + rec.Agent)
}

// isOfNeighbour reports whether an object of the spoke is the copy of another agent there, of
// this hub or another: its source is on that hub, and it is not an autonomous agent's to show.
func (m Marks) isOfNeighbour(o object.Object) bool {
	return m.Side == stream.Spoke && o.Annotation(object.PrincipalUIDKey) != "" && record.Has(o) && !m.IsCopy(o)
}

// RefuseRemoval refuses what would remove a copy of a hub that the agent had before.
func (m Marks) RefuseRemoval(current *object.Object) *stream.Refusal {
	if current == nil || !m.IsCopy(*current) {
		return nil
	}
	return m.OthersCopy(*current)
}

// A mirror names its hub beside the record (object.HubKey), so that a policy of the API server can
// tell what of a cluster this hub keeps: two hubs may share one. No one compares the mark: it
// says nothing of whose a mirror is, and is in no hash.

// IsOwnMirror reports whether o is a mirror of this hub's agent: of what an autonomous one
// has, or of a child application.
func (m Marks) IsOwnMirror(o object.Object) bool {
	return m.Side == stream.Hub && (m.IsChild(o) || m.Mode == stream.Autonomous && m.IsCopy(o))
}

// NamesNoHub reports whether a mirror names no hub, since an earlier release made it. One that
// names another is left to the next write: two hubs that keep mirrors of one name would
// otherwise take the mark from each other without an end.
func (m Marks) NamesNoHub(o object.Object) bool {
	return m.Hub != "" && o.Annotation(object.HubKey) == "" && !o.Deleting() && m.IsOwnMirror(o)
}

// NamesOtherHub reports whether a mirror names another hub: the ConfigMap that identifies this
// one was made again, or the mirror was another hub's.
func (m Marks) NamesOtherHub(o object.Object) bool {
	mark := o.Annotation(object.HubKey)
	return m.Hub != "" && mark != "" && mark != m.Hub && m.IsOwnMirror(o)
}

// RefuseReleased says why a mirror that was released is not taken over again, whatever spec.adopt
// of its Agent names.
func (m Marks) RefuseReleased(o object.Object) *stream.Refusal {
	if !record.IsReleased(o) {
		return nil
	}
	return &stream.Refusal{
		Kind: stream.RefusalNotOwned,
		Message: "the " + string(o.Key.Kind) + " of that name on the hub was released, and is the hub's own: " +
			"rename or remove one of the two, or take its annotation " + record.ReleasedKey + " away",
	}
}

// Recreate is a value of object.MismatchPolicyKey: what becomes of the copy of an earlier
// Application when another one of its name, and so with another UID, takes its
// place. With upsert, the default, the copy is overwritten in place; with recreate
// it is released, its workloads left where they are, and made again, so that
// nothing of the earlier one is left: no history, no status, no keys of others.
const Recreate = "recreate"

// Recreates reports whether an event must not overwrite current but replace it.
// Only what we wrote ourselves is replaced: an object that was adopted stays where it
// is.
func (m Marks) Recreates(e stream.Event, current object.Object, annotations map[string]any) bool {
	rec, _ := record.Of(current)
	return rec.Adopted == "" && current.Key.Kind == stream.Application &&
		annotations[object.MismatchPolicyKey] == Recreate &&
		m.IsCopy(current) && current.Annotation(object.SourceUIDKey) != e.Version.SourceUID
}

// MissingRoles is what people are told of the roles that the mirror of a project lacks; nil
// for nothing.
func (m Marks) MissingRoles(o object.Object) *stream.Refusal {
	if o.Key.Kind != stream.AppProject || !m.Prefixed() || !m.IsCopy(o) {
		return nil
	}
	rec, _ := record.Of(o)
	if len(rec.Lacks) == 0 {
		return nil
	}
	return stream.Invalid("its mirror " + o.Key.Name + " is without " + strings.Join(rec.Lacks, "; "))
}
