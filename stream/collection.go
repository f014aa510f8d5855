package stream

import (
	"fmt"

	"github.com/argomesh/argomesh/identity"
)

// Mode says which side owns the Applications of an agent. The zero value is no
// mode.
type Mode uint8

const (
	// Managed agents get their Applications from the hub.
	Managed Mode = iota + 1
	// Autonomous agents own their Applications; the hub shows mirrors of them.
	Autonomous
)

// ParseMode returns an error wrapping identity.ErrInvalid when s is neither
// "managed" nor "autonomous".
func ParseMode(s string) (Mode, error) {
	switch s {
	case "managed":
		return Managed, nil
	case "autonomous":
		return Autonomous, nil
	}
	return 0, fmt.Errorf("mode %s is neither managed nor autonomous: %w", identity.Quote(s), identity.ErrInvalid)
}

func (m Mode) String() string {
	switch m {
	case Managed:
		return "managed"
	case Autonomous:
		return "autonomous"
	}
	return ""
}

// MarshalText writes the name of the mode; the zero value is empty.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is ParseMode.
func (m *Mode) UnmarshalText(text []byte) error {
	parsed, err := ParseMode(string(text))
	if err != nil {
		return err
	}
	*m = parsed
	return nil
}

// Side is one end of a link.
type Side uint8

const (
	// Hub is the principal's end.
	Hub Side = iota + 1
	// Spoke is the agent's end.
	Spoke
)

func (s Side) String() string {
	switch s {
	case Hub:
		return "hub"
	case Spoke:
		return "spoke"
	}
	return ""
}

// Collection is a kind of content that flows in one direction of a link.
type Collection uint8

const (
	// Applications is what each Application should be: spec and owned metadata.
	Applications Collection = iota + 1
	// AppProjects is what each AppProject should be.
	AppProjects
	// Statuses is the status of each Application as the spoke shows it.
	Statuses
	// Commands is what the hub asks of an Application once: an operation, a
	// termination, a refresh.
	Commands
	// Children are the Applications of a managed spoke that are not the hub's, with
	// their statuses, for the hub to show.
	Children
	// Repositories are the Secrets by which Argo CD reads repositories: each
	// repository's own, templates for many, and what may write to them.
	Repositories
	// Trust is what Argo CD checks repositories and commits by, one entry for each
	// ConfigMap: GPG keys, TLS certificates, SSH known hosts.
	Trust
)

// Collections lists every collection, in the order in which a source sends when
// several have something to send: projects before the Applications that name
// them, what reads repositories before the Applications that do, commands after the
// Applications they address.
func Collections() []Collection {
	return []Collection{AppProjects, Trust, Repositories, Applications, Commands, Statuses, Children}
}

// Kind is a Kubernetes kind that a Store holds. Each has a row in kinds.
type Kind string

// The kinds we read and write.
const (
	Application Kind = "Application"
	AppProject  Kind = "AppProject"
	Secret      Kind = "Secret"
	ConfigMap   Kind = "ConfigMap"
)

// APIResource is where an API server serves a kind. The group of the core is empty.
type APIResource struct{ Group, Version, Resource string }

var kinds = map[Kind]APIResource{
	Application: {Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"},
	AppProject:  {Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"},
	Secret:      {Version: "v1", Resource: "secrets"},
	ConfigMap:   {Version: "v1", Resource: "configmaps"},
}

// APIResource is where an API server serves the kind, and whether it is one of ours.
func (k Kind) APIResource() (APIResource, bool) {
	r, known := kinds[k]
	return r, known
}

// collections are what is known of each collection beside its direction, which is Source.
var collections = [...]struct {
	name    string
	kind    Kind
	desired bool
	byName  bool
}{
	Applications: {name: "application", kind: Application, desired: true},
	AppProjects:  {name: "appproject", kind: AppProject, desired: true},
	Statuses:     {name: "status", kind: Application},
	Commands:     {name: "command", kind: Application},
	Children:     {name: "child", kind: Application},
	Repositories: {name: "repository", kind: Secret, desired: true, byName: true},
	Trust:        {name: "trust", kind: ConfigMap, desired: true, byName: true},
}

// String is the kind of the collection's CloudEvents and the label of its metrics; empty for a
// collection that this release does not know.
func (c Collection) String() string {
	if int(c) >= len(collections) {
		return ""
	}
	return collections[c].name
}

// Kind is the Kubernetes kind of the object that an entry is about; empty for a collection
// that this release does not know.
func (c Collection) Kind() Kind {
	if int(c) >= len(collections) {
		return ""
	}
	return collections[c].kind
}

// Desired reports whether the entries say what should be, so that they exist by the word of
// their source, and an entry that is absent asks for an end. Others say what is, or ask once.
func (c Collection) Desired() bool { return int(c) < len(collections) && collections[c].desired }

// ByName reports whether the entries are objects of Argo CD's own namespace on either side, by
// the same names.
func (c Collection) ByName() bool { return int(c) < len(collections) && collections[c].byName }

// Source is the side that knows what a collection should hold. Collections
// without a source in that mode, and the zero values, have none.
func (c Collection) Source(m Mode) Side {
	switch {
	case m != Managed && m != Autonomous:
		return 0
	case c == Statuses:
		return Spoke
	case c == Commands:
		return Hub
	case c == Children && m == Managed:
		return Spoke
	case (c == Repositories || c == Trust) && m == Managed:
		return Hub
	case c != Applications && c != AppProjects:
		return 0
	case m == Managed:
		return Hub
	default:
		return Spoke
	}
}
