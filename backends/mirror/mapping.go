package mirror

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// NamespacePair says where on the hub the Applications of one namespace of a spoke are.
type NamespacePair struct {
	// Spoke is the namespace on the spoke; empty for that of its Argo CD.
	Spoke string
	// Hub is the one on the hub.
	Hub string
}

// Mapping is where on a spoke the Applications of its link may be, by its owner. The
// zero value says in the namespace of its Argo CD alone.
type Mapping struct {
	Namespaces       []string `koanf:"namespaces" help:"globs, or regular expressions between slashes, of the namespaces beside Argo CD's own whose Applications are mirrored; the spoke's Argo CD has to watch them too (application.namespaces)"`
	CreateNamespaces bool     `koanf:"create_namespaces" help:"makes such a namespace when the hub has an Application for it and it is missing; never one to deploy into"`
}

// Validate reports every problem, as errors that wrap identity.ErrInvalid.
func (m Mapping) Validate() error {
	if err := ValidateNamespaces(m.Namespaces); err != nil {
		return fmt.Errorf("namespaces: %w", err)
	}
	return nil
}

// Watched returns the namespaces whose Applications are to be watched, own first; none
// for those of all namespaces, when a pattern may name any.
func (m Mapping) Watched(own string) []string {
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

// byDestination reports whether the agent has the hub's Applications by their
// destination.
func (r Rules) byDestination() bool {
	return r.ByDestination && r.Side == stream.Hub && r.Mode == stream.Managed
}

// pairs are the namespaces of the agent on the hub, unless it has its Applications by
// destination.
func (r Rules) pairs() []NamespacePair {
	if r.Pairs == nil {
		return []NamespacePair{{Hub: r.Agent.String()}}
	}
	return r.Pairs
}

// paired reports whether the namespaces of this side have other names than on the
// wire.
func (r Rules) paired() bool { return r.Side == stream.Hub && !r.byDestination() }

// holdsChildren reports whether a namespace of the hub is the one where the agent's child
// applications are shown by destination.
func (r Rules) holdsChildren(namespace string) bool {
	return namespace != "" && namespace == r.ChildNamespace && namespace != r.Namespace
}

// here is the namespace of this side that the wire calls namespace; false when it is
// none of the link's.
func (r Rules) here(namespace string) (string, bool) {
	switch {
	case r.paired():
		for _, p := range r.pairs() {
			if p.Spoke == namespace {
				return p.Hub, true
			}
		}
		return "", false
	case namespace == "":
		return r.Namespace, true
	}
	return namespace, namespace != r.Namespace && MatchesNamespace(r.Namespaces, namespace)
}

// onWire is what the wire calls a namespace of this side; false when it is none of the
// link's.
func (r Rules) onWire(namespace string) (string, bool) {
	switch {
	case r.paired():
		for _, p := range r.pairs() {
			if p.Hub == namespace {
				return p.Spoke, true
			}
		}
		return "", false
	case namespace == r.Namespace:
		return "", true
	}
	return namespace, MatchesNamespace(r.Namespaces, namespace)
}

// namespaces are those to be listed for the Applications of the link; empty for all.
func (r Rules) namespaces() []string {
	switch {
	case r.paired():
		var hub []string
		for _, p := range r.pairs() {
			hub = append(hub, p.Hub)
		}
		return hub
	case len(r.Namespaces) > 0:
		return []string{""} // Keys tells which are the link's
	case r.byDestination() && r.holdsChildren(r.ChildNamespace):
		return []string{r.Namespace, r.ChildNamespace}
	}
	return []string{r.Namespace}
}

// entry is the entry of a collection that an Application is.
func (r Rules) entry(c stream.Collection, key stream.ResourceKey) stream.EntryKey {
	namespace, _ := r.onWire(key.Namespace)
	return stream.EntryKey{Collection: c, Namespace: namespace, Name: key.Name}
}

// outside says why an entry that the peer named is not the link's.
func (r Rules) outside(key stream.EntryKey) *stream.Refusal {
	if r.Side == stream.Spoke && key.Namespace != "" && key.Namespace != r.Namespace && key.Collection.Source(r.Mode) != 0 {
		return &stream.Refusal{
			Kind:    stream.RefusalDenied,
			Message: fmt.Sprintf("mapping.namespaces of the spoke does not allow Applications in its namespace %s", key.Namespace),
		}
	}
	if r.paired() && r.Mode == stream.Autonomous && key.Collection == stream.Applications {
		where := "its Argo CD's namespace"
		if key.Namespace != "" {
			where = "its namespace " + key.Namespace
		}
		return &stream.Refusal{
			Kind:    stream.RefusalNotOwned,
			Message: "the hub has no namespace of the agent's for Applications of " + where + ": see spec.mapping.namespaces of its Agent",
		}
	}
	if r.byDestination() && key.Collection == stream.Children {
		return &stream.Refusal{Kind: stream.RefusalNotOwned, Message: r.unshown(key)}
	}
	return &stream.Refusal{Kind: stream.RefusalNotOwned, Message: "the entry is outside of what this link is about"}
}

// ChildElsewhere reports whether an entry is a child application, by destination, of a
// namespace of the spoke of which none are shown.
func (r Rules) ChildElsewhere(key stream.EntryKey) bool {
	return r.byDestination() && key.Collection == stream.Children && key.Namespace != ""
}

// unshown says why the hub does not show a child application.
func (r Rules) unshown(key stream.EntryKey) string {
	if r.ChildElsewhere(key) {
		return "child applications are shown of the namespace of the spoke's Argo CD alone, since the hub maps by destination: " +
			"one of namespace " + key.Namespace + " could have the name of another"
	}
	return "the hub has no namespace for child applications of agent " + r.Agent.String() + ": see its Agent"
}

// MatchesNamespace reports whether a namespace matches one of the patterns: globs, or
// regular expressions between slashes, as in the sourceNamespaces of Argo CD. A
// pattern that does not parse matches nothing.
func MatchesNamespace(patterns []string, namespace string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return pattern == namespace || matcher(pattern)(namespace) })
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
	matches, err := compileGlob(pattern)
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
			_, err = compileGlob(pattern)
		}
		if err != nil || pattern == "" {
			problems = append(problems, fmt.Errorf("%q is neither a glob nor a regular expression between slashes: %w", pattern, identity.ErrInvalid))
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
