package stream

import (
	"regexp"
	"slices"
)

// Capability is something a release can do beyond what every peer of its Protocol
// can, by its name on the wire: up to 63 lower-case letters, digits and hyphens,
// and a letter first.
//
// A release that adds a frame, a field whose absence would mislead, or a meaning
// offers a capability for it, and uses it on a connection only when both sides
// offer it. A collection needs none: its source sends nothing before the sink has
// sent its digest, which a sink that does not know it never does.
type Capability string

// WriteCredentials is offered by an agent whose owner lets the hub store credentials
// there that may write to repositories. A hub sends none to another.
const WriteCredentials Capability = "write-credentials"

// GiveUp is offered by an agent that knows Event.GiveUp. A hub ends the sharing of
// an object with no other, which would delete it.
const GiveUp Capability = "give-up"

// SeenDeletes is offered by an agent that carries out a Delete which names what was
// deleted only on the copy of that very object. A hub does not count such a Delete
// among the absences that it guards.
const SeenDeletes Capability = "seen-deletes"

// ShowEvents is offered by a principal that shows what a spoke's Argo CD says of its
// Applications, and by an agent that tells it. An agent sends ApplicationEvents to no
// other.
const ShowEvents Capability = "application-events"

var capabilityForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)

// Capabilities is a set of capabilities. The zero value is empty.
type Capabilities struct{ names []Capability } // sorted, without repetition

// NewCapabilities returns the set of those that are capabilities by their form;
// what else a peer sends is nothing that we could know.
func NewCapabilities(names ...Capability) Capabilities {
	names = slices.DeleteFunc(slices.Clone(names),
		func(c Capability) bool { return !capabilityForm.MatchString(string(c)) })
	slices.Sort(names)
	if names = slices.Compact(names); len(names) == 0 {
		return Capabilities{}
	}
	return Capabilities{names: names}
}

// Has reports whether c is in the set.
func (s Capabilities) Has(c Capability) bool {
	_, found := slices.BinarySearch(s.names, c)
	return found
}

// Common returns what is in both sets: what a connection may use. Capabilities of
// a newer peer that we do not offer are not in it.
func (s Capabilities) Common(other Capabilities) Capabilities {
	var common []Capability
	for _, c := range s.names {
		if other.Has(c) {
			common = append(common, c)
		}
	}
	return Capabilities{names: common}
}

// Names returns the sorted names, as the wire has them; nil when there are none.
func (s Capabilities) Names() []string {
	var names []string
	for _, c := range s.names {
		names = append(names, string(c))
	}
	return names
}

// Equal reports whether both sets are the same.
func (s Capabilities) Equal(other Capabilities) bool { return slices.Equal(s.names, other.names) }

func parseCapabilities(names []string) Capabilities {
	all := make([]Capability, len(names))
	for i, name := range names {
		all[i] = Capability(name)
	}
	return NewCapabilities(all...)
}
