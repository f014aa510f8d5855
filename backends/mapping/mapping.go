package mapping

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argomesh/argomesh/backends/glob"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// Pair says where on the hub the Applications of one namespace of a spoke are.
type Pair struct {
	// Spoke is the namespace on the spoke; empty for that of its Argo CD.
	Spoke string
	// Hub is the one on the hub.
	Hub string
}

// Settings is where on a spoke the Applications of its link may be, by its owner. The
// zero value says in the namespace of its Argo CD alone.
type Settings struct {
	Namespaces       []string `koanf:"namespaces" help:"globs, or regular expressions between slashes, of the namespaces beside Argo CD's own whose Applications are mirrored; the spoke's Argo CD has to watch them too (application.namespaces)"`
	CreateNamespaces bool     `koanf:"create_namespaces" help:"makes such a namespace when the hub has an Application for it and it is missing; never one to deploy into"`
}

// Validate reports every problem, as errors that wrap identity.ErrInvalid.
func (m Settings) Validate() error {
	if err := ValidateNamespaces(m.Namespaces); err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	return nil
}

// Watched returns the namespaces whose Applications are to be watched, own first; none
// for those of all namespaces, when a pattern may name any.
func (m Settings) Watched(own string) []string {
	list := []string{own}
	for _, pattern := range m.Namespaces {
		switch {
		case len(validation.IsDNS1123Label(pattern)) > 0:
			return nil
		case !slices.Contains(list, pattern):
			list = append(list, pattern)
		}
	}
	return list
}

// On the wire a namespace is what it is on the spoke, and that of the spoke's Argo CD
// is empty, since the hub need not know it. By destination the hub's Argo CD
// namespace is the spoke's, and every other has the same name on both sides.

// Divided reports whether the agent has the hub's Applications by their
// destination.
func (m Map) Divided() bool {
	return m.ByDestination && m.Side == stream.Hub && m.Mode == stream.Managed
}

// NamespacePairs are the namespaces of the agent on the hub, unless it has its Applications by
// destination.
func (m Map) NamespacePairs() []Pair {
	if m.Pairs == nil {
		return []Pair{{Hub: m.Agent.String()}}
	}
	return m.Pairs
}

// paired reports whether the namespaces of this side have other names than on the
// wire.
func (m Map) paired() bool { return m.Side == stream.Hub && !m.Divided() }

// holdsChildren reports whether a namespace of the hub is the one where the agent's child
// applications are shown by destination.
func (m Map) holdsChildren(namespace string) bool {
	return namespace != "" && namespace == m.ChildNamespace && namespace != m.Namespace
}

// Here is the namespace of this side that the wire calls namespace; false when it is
// none of the link's.
func (m Map) Here(namespace string) (string, bool) {
	switch {
	case m.paired():
		for _, p := range m.NamespacePairs() {
			if p.Spoke == namespace {
				return p.Hub, true
			}
		}
		return "", false
	case namespace == "":
		return m.Namespace, true
	}
	return namespace, namespace != m.Namespace && MatchesNamespace(m.Namespaces, namespace)
}

// OnWire is what the wire calls a namespace of this side; false when it is none of the
// link's.
func (m Map) OnWire(namespace string) (string, bool) {
	switch {
	case m.paired():
		for _, p := range m.NamespacePairs() {
			if p.Hub == namespace {
				return p.Spoke, true
			}
		}
		return "", false
	case namespace == m.Namespace:
		return "", true
	}
	return namespace, MatchesNamespace(m.Namespaces, namespace)
}

// LocalNamespaces are those to be listed for the Applications of the link; empty for all.
func (m Map) LocalNamespaces() []string {
	switch {
	case m.paired():
		var hub []string
		for _, p := range m.NamespacePairs() {
			hub = append(hub, p.Hub)
		}
		return hub
	case len(m.Namespaces) > 0:
		return []string{""} // Keys tells which are the link's
	case m.Divided() && m.holdsChildren(m.ChildNamespace):
		return []string{m.Namespace, m.ChildNamespace}
	}
	return []string{m.Namespace}
}

// Entry is the entry of a collection that an Application is.
func (m Map) Entry(c stream.Collection, key stream.ResourceKey) stream.EntryKey {
	namespace, _ := m.OnWire(key.Namespace)
	return stream.EntryKey{Collection: c, Namespace: namespace, Name: key.Name}
}

// Outside says why an entry that the peer named is not the link's.
func (m Map) Outside(key stream.EntryKey) *stream.Refusal {
	if m.Side == stream.Spoke && key.Namespace != "" && key.Namespace != m.Namespace &&
		key.Collection.Source(m.Mode) != 0 {
		return &stream.Refusal{
			Kind: stream.RefusalDenied,
			Message: fmt.Sprintf("mapping.namespaces of the spoke does not allow Applications in its namespace %s",
				key.Namespace),
		}
	}
	if m.paired() && m.Mode == stream.Autonomous && key.Collection == stream.Applications {
		where := "its Argo CD's namespace"
		if key.Namespace != "" {
			where = "its namespace " + key.Namespace
		}
		return &stream.Refusal{
			Kind: stream.RefusalNotOwned,
			Message: "the hub has no namespace of the agent's for Applications of " + where +
				": see spec.mapping.namespaces of its Agent",
		}
	}
	if m.Divided() && key.Collection == stream.Children {
		return &stream.Refusal{Kind: stream.RefusalNotOwned, Message: m.unshown(key)}
	}
	return &stream.Refusal{Kind: stream.RefusalNotOwned, Message: "the entry is outside of what this link is about"}
}

// ChildElsewhere reports whether an entry is a child application, by destination, of a
// namespace of the spoke of which none are shown.
func (m Map) ChildElsewhere(key stream.EntryKey) bool {
	return m.Divided() && key.Collection == stream.Children && key.Namespace != ""
}

// unshown says why the hub does not show a child application.
func (m Map) unshown(key stream.EntryKey) string {
	if m.ChildElsewhere(key) {
		return "child applications are shown of the namespace of the spoke's Argo CD alone, since the hub maps by destination: " +
			"one of namespace " + key.Namespace + " could have the name of another"
	}
	return "the hub has no namespace for child applications of agent " + m.Agent.String() + ": see its Agent"
}

// MatchesNamespace reports whether a namespace matches one of the patterns: globs, or
// regular expressions between slashes, as in the sourceNamespaces of Argo CD. A
// pattern that does not parse matches nothing.
func MatchesNamespace(patterns []string, namespace string) bool {
	return slices.ContainsFunc(patterns,
		func(pattern string) bool { return pattern == namespace || matcher(pattern)(namespace) })
}

// NamespaceMatcher is MatchesNamespace for patterns that are parsed once. What it
// returns may be called concurrently.
func NamespaceMatcher(patterns []string) func(namespace string) bool {
	matchers := make([]func(string) bool, len(patterns))
	for i, pattern := range patterns {
		matchers[i] = matcher(pattern)
	}
	return func(namespace string) bool {
		return slices.ContainsFunc(matchers, func(matches func(string) bool) bool { return matches(namespace) })
	}
}

// matcher parses a pattern.
func matcher(pattern string) func(namespace string) bool {
	if text, is := expression(pattern); is {
		re, err := regexp.Compile(text)
		return func(namespace string) bool { return err == nil && re.MatchString(namespace) }
	}
	matches, err := glob.Compile(pattern)
	return func(namespace string) bool { return namespace == pattern || err == nil && matches(namespace) }
}

// ValidateNamespaces says which pattern is none, as an error that wraps
// identity.ErrInvalid.
func ValidateNamespaces(patterns []string) error {
	var problems []error
	for _, pattern := range patterns {
		var err error
		if text, is := expression(pattern); is {
			_, err = regexp.Compile(text)
		} else {
			_, err = glob.Compile(pattern)
		}
		if err != nil || pattern == "" {
			problems = append(problems,
				fmt.Errorf("%q is neither a glob nor a regular expression between slashes: %w", pattern, identity.ErrInvalid))
		}
	}
	return errors.Join(problems...)
}

// expression is the regular expression that a pattern is, if it is one.
func expression(pattern string) (string, bool) {
	if len(pattern) > 2 && strings.HasPrefix(pattern, "/") && strings.HasSuffix(pattern, "/") {
		return pattern[1 : len(pattern)-1], true
	}
	return "", false
}
