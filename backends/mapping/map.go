// Package mapping says where the objects of a link are: which namespace, name or destination on
// the hub belongs to which agent, and what both sides call it on the wire. Pure.
package mapping

import (
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// Map says which objects of one side a link is about, and what they are called on the
// wire: on the hub by the namespace that an agent has, or by destination. Its methods are
// pure.
type Map struct {
	Side  stream.Side
	Mode  stream.Mode
	Agent identity.AgentName
	// Namespace is where Argo CD's own objects are on this side.
	Namespace string
	// Namespaces are patterns (see MatchesNamespace) of the namespaces beside Namespace
	// in which Applications of the link may be: on a spoke, and on the hub by
	// destination.
	Namespaces []string
	// Pairs are the agent's namespaces on the hub, one for each of the spoke; no hub
	// namespace is there twice. Nil means that the hub's has the agent's name and the
	// spoke's is that of Argo CD. Used on the hub, unless ByDestination.
	Pairs []Pair
	// ByDestination says that an Application of the hub is the agent's by its
	// destination. The Store then has to show those alone that are: see shares.Partition. Used on
	// the hub of a managed agent.
	ByDestination bool
	// ChildNamespace is the namespace of the hub where child applications of the spoke's
	// Argo CD namespace are shown by destination. It is the agent's alone and never
	// Namespace, where those of several agents would meet; empty for none. Used on the hub,
	// ByDestination.
	ChildNamespace string
	// Selector selects the hub's Applications that the agent may have; the others are
	// left alone as if they were not there. Nil selects all. Used on the hub of a managed
	// agent.
	Selector labels.Selector
	// ClusterServer is the server URL of the agent's cluster Secret, by which an
	// Application on the hub may name its destination. Used on the hub.
	ClusterServer string
	// Longer are the other autonomous agents whose names begin with this one's and a dash:
	// a name of a project that theirs fit is not this agent's. Used on the hub of an
	// autonomous agent.
	Longer []identity.AgentName
}

// Sources reports whether this side is the source of c.
func (m Map) Sources(c stream.Collection) bool { return c.Source(m.Mode) == m.Side }

// ProjectPrefix is what the names of an autonomous agent's projects begin with
// on the hub.
func (m Map) ProjectPrefix() string { return m.Agent.String() + "-" }

// Prefixed reports whether names of projects differ between the sides.
func (m Map) Prefixed() bool { return m.Side == stream.Hub && m.Mode == stream.Autonomous }

// Keys returns the entries in which a local object has a part; none when it is
// not this link's.
func (m Map) Keys(key stream.ResourceKey) []stream.EntryKey {
	switch {
	case key.Kind == stream.Application:
		return m.applicationKeys(key)
	case key.Kind == stream.AppProject && key.Namespace == m.Namespace:
		name := key.Name
		if m.Prefixed() {
			rest, found := strings.CutPrefix(name, m.ProjectPrefix())
			if !found || rest == "" || m.others(name) != "" {
				return nil
			}
			name = rest
		}
		return []stream.EntryKey{{Collection: stream.AppProjects, Name: name}}
	case key.Namespace == m.Namespace && object.MayBeMirrored(key.Kind, key.Name):
		for _, c := range stream.Collections() {
			if c.ByName() && c.Kind() == key.Kind && c.Source(m.Mode) != 0 {
				return []stream.EntryKey{{Collection: c, Name: key.Name}}
			}
		}
	}
	return nil
}

// applicationKeys is Keys of an Application. By destination the namespace where children
// are shown may be one of the hub's Applications as well.
func (m Map) applicationKeys(key stream.ResourceKey) []stream.EntryKey {
	var keys []stream.EntryKey
	namespace, ours := m.OnWire(key.Namespace)
	if ours {
		keys = []stream.EntryKey{
			{Collection: stream.Applications, Namespace: namespace, Name: key.Name},
			{Collection: stream.Commands, Namespace: namespace, Name: key.Name},
			{Collection: stream.Statuses, Namespace: namespace, Name: key.Name},
		}
	}
	switch {
	case m.Divided():
		namespace, ours = "", m.holdsChildren(key.Namespace)
	case m.Mode != stream.Managed:
		return keys
	}
	if ours {
		keys = append(keys, stream.EntryKey{Collection: stream.Children, Namespace: namespace, Name: key.Name})
	}
	return keys
}

// Local returns the object that an entry is about; false when the peer may not
// name it.
func (m Map) Local(key stream.EntryKey) (stream.ResourceKey, bool) {
	if key.Collection.Source(m.Mode) == 0 {
		return stream.ResourceKey{}, false
	}
	switch key.Collection {
	case stream.Applications, stream.Commands, stream.Statuses, stream.Children:
		namespace, ours := m.Here(key.Namespace)
		if key.Collection == stream.Children && m.Divided() {
			// Those of several namespaces would meet in one.
			namespace, ours = m.ChildNamespace, key.Namespace == "" && m.holdsChildren(m.ChildNamespace)
		}
		if !ours {
			return stream.ResourceKey{}, false
		}
		return stream.ResourceKey{Kind: stream.Application, Namespace: namespace, Name: key.Name}, true
	}
	if key.Namespace != "" {
		return stream.ResourceKey{}, false
	}
	if key.Collection.ByName() {
		kind := key.Collection.Kind()
		return stream.ResourceKey{Kind: kind, Namespace: m.Namespace, Name: key.Name}, object.MayBeMirrored(kind, key.Name)
	}
	name := key.Name
	if m.Prefixed() {
		name = m.ProjectPrefix() + name
	}
	return stream.ResourceKey{Kind: stream.AppProject, Namespace: m.Namespace, Name: name}, true
}

// Selects reports whether a hub Application is selected. What is not a managed
// agent's always is.
func (m Map) Selects(o object.Object) bool {
	if m.Selector == nil || m.Side != stream.Hub || m.Mode != stream.Managed || o.Key.Kind != stream.Application {
		return true
	}
	set := labels.Set{}
	for key, value := range o.Child("metadata", "labels") {
		set[key], _ = value.(string)
	}
	return m.Selector.Matches(set)
}

// Destined reports whether the destination of a hub Application is the agent.
func (m Map) Destined(o object.Object) bool {
	return m.isDestination(object.StringAt(o.Child("spec", "destination"), "name"),
		object.StringAt(o.Child("spec", "destination"), "server"))
}

// isDestination reports whether a destination on the hub is the agent. As to Argo CD,
// a slash at the end of a server makes no difference.
func (m Map) isDestination(name, server string) bool {
	if name != "" {
		return name == m.Agent.String() && server == ""
	}
	server = strings.TrimRight(server, "/")
	return server != "" && server == m.ClusterServer
}
