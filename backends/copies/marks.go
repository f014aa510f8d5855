// Package copies tells of an object on one side of a link whether it is the link's: which copy or
// mirror of whose object it is, from when, and what of it is not to travel. Pure.
package copies

import (
	"time"

	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// Marks are by what one side of a link knows what of its objects is a copy or a mirror of the
// link's, of whose object, and from when. Their methods are pure.
type Marks struct {
	mapping.Map
	// HubUID identifies the hub whose copies a spoke holds. Used on the spoke.
	HubUID string
	// Hub identifies this hub, which its mirrors name. Empty where that is not known. Used on
	// the hub.
	Hub string
	// FormerHubs are the hubs that the agent had before HubUID. Its copies of theirs are
	// told to the hub as what the spoke holds. Used on the spoke.
	FormerHubs []string
	// Inherits says that someone let the hub have the copies of FormerHubs; before, they
	// are neither written nor removed. Used on the spoke.
	Inherits bool
	// HistoryID names the history of the hub in which its revisions are comparable;
	// empty while it is not known, and then they are not compared.
	HistoryID string
	// Children says whether the hub shows the managed spoke's own Applications: the
	// spoke sends them, and the hub takes them, only then. A Mirror has it from the
	// handshake of its connection.
	Children bool
}

// SourceUID is the UID at its source of the Application that o is or mirrors. The
// mirror of a child application has none: it is an entry of its own collection.
func (m Marks) SourceUID(o object.Object) string {
	owner := stream.Hub
	if m.Mode == stream.Autonomous {
		owner = stream.Spoke
	}
	switch {
	case m.IsChild(o) || !m.Selects(o):
		return ""
	case m.Side == owner && m.isOfNeighbour(o):
		return ""
	case m.Side == owner:
		return o.UID()
	}
	if !m.IsCopy(o) {
		return ""
	}
	return o.Annotation(object.SourceUIDKey)
}

// Unsendable says why an Application of the hub, in the namespace of a managed
// agent, is not the agent's; empty when it is, and for every other object.
func (m Marks) Unsendable(o object.Object) string {
	if m.Side != stream.Hub || m.Mode != stream.Managed {
		return ""
	}
	if record.Has(o) {
		return "it is a mirror from the time when the agent was autonomous; its original is on the spoke, so remove the mirror without cascade"
	}
	if m.Destined(o) {
		return ""
	}
	alias := m.AliasIn(o)
	switch {
	case alias != mapping.AliasNone:
		return m.ExplainAlias(o, alias)
	case m.Divided():
		return "the destination names agent " + m.Agent.String() + " and a server; it may name only one of the two"
	}
	return "the destination is not agent " + m.Agent.String() +
		", to whose namespace the Application belongs; set destination.name to " + m.Agent.String()
}

// IsChild reports whether a hub object is the mirror of a child application.
func (m Marks) IsChild(o object.Object) bool {
	if m.Side != stream.Hub || m.Mode != stream.Managed || o.Key.Kind != stream.Application {
		return false
	}
	rec, ok := record.Of(o)
	return ok && record.IsMirror(o) && rec.Child && rec.Agent == m.Agent.String()
}

// UIDIn is the UID at its source of what o is, or mirrors, in collection c; empty
// when it has no part there.
func (m Marks) UIDIn(c stream.Collection, o object.Object) string {
	switch {
	case c != stream.Children:
		return m.SourceUID(o)
	case m.IsChild(o):
		return o.Annotation(object.SourceUIDKey)
	case m.Side == stream.Spoke && m.Mode == stream.Managed && m.Children &&
		o.Key.Kind == stream.Application && o.Annotation(object.SourceUIDKey) == "":
		return o.UID()
	}
	return ""
}

// Sendable reports whether a hub Application is one that a managed agent gets.
func (m Marks) Sendable(o object.Object) bool {
	return m.SourceUID(o) != "" && o.Label(object.IgnoreSyncKey) != "true" && m.Unsendable(o) == ""
}

// GoesWithAgent reports whether a hub Application goes with its agent.
func (m Marks) GoesWithAgent(o object.Object, deleted time.Time) bool {
	created, err := time.Parse(time.RFC3339, o.Meta("creationTimestamp"))
	// Both times are whole seconds. What was made in the very second cannot be on the
	// spoke, if it was made later.
	return err == nil && !created.After(deleted) && m.Sendable(o)
}

// DeletedLocally reports whether the spoke's owner deletes a copy together with its
// workloads, which the hub did not ask for. It is his to do.
func (m Marks) DeletedLocally(o object.Object) bool {
	rec, _ := record.Of(o)
	return m.Side == stream.Spoke && o.Key.Kind == stream.Application && m.IsCopy(o) && o.Cascades() && !rec.Leaving
}

// OnBothSides reports whether an Application is one of which both sides have something, so that
// what the spoke's Argo CD says of it is for the hub.
func (m Marks) OnBothSides(o object.Object) bool {
	return o.Label(object.IgnoreSyncKey) != "true" &&
		(m.UIDIn(stream.Statuses, o) != "" || m.UIDIn(stream.Children, o) != "")
}

// WasSent reports whether a hub Application was the agent's, as it was last. That it was
// being deleted, with its workloads or without, makes no difference.
func (m Marks) WasSent(o object.Object) bool {
	return m.Sources(stream.Applications) && o.Label(object.IgnoreSyncKey) != "true" &&
		m.UIDIn(stream.Applications, o) != "" && m.Unsendable(o) == ""
}

// ShowsSpoke reports whether the status of an Application of the hub is what the spoke says.
func (m Marks) ShowsSpoke(o object.Object) bool {
	return m.IsChild(o) || m.SourceUID(o) != "" && m.Unsendable(o) == "" && o.Label(object.IgnoreSyncKey) != "true"
}
