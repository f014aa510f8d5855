package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/backends/glob"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/stream"
)

// A project that is on the spoke when its owner's policy becomes narrower, as by an
// upgrade to a release with more rules, must not go on admitting what the policy does
// not: Argo CD acts on it without the hub. So it keeps those entries that the policy
// Admits as a whole. Globs are not cut, since a part of one cannot be written; nothing
// that denies or restrains goes; and no list becomes empty where Argo CD takes that for
// all. Where this leaves nothing, the project has no destinations, and so admits nothing.

// Bounded is the spec of a project, of that name, of which is left what the policy
// Admits, and the paths of what is not, sorted by field, at most stream.MaxDropped; the
// spec as it is, and none, when the policy admits all of it. What it is given is not
// changed.
func (p *Policy) Bounded(name string, spec map[string]any) (bounded map[string]any, missing []string) {
	if p.Admits(name, spec) == nil {
		return spec, nil
	}
	bounded, _ = object.Clone(spec).(map[string]any)
	switch {
	case p.Kind(KindProject) != nil:
		return spec, nil // AppProjects are the owner's, and so are those that the hub left
	case p.Project(name) != nil:
		return withoutDestinations(bounded)
	}
	for _, l := range p.lists() {
		var kept []any
		lost := false
		for i, entry := range object.ListAt(spec, l.field) {
			if l.admits(entry) && !(lost && l.first) {
				kept = append(kept, entry)
				continue
			}
			if l.denies != nil && l.denies(entry) {
				return withoutDestinations(bounded)
			}
			lost = true
			missing = append(missing, fmt.Sprintf("spec.%s[%d]", l.field, i))
		}
		if lost {
			object.SetList(bounded, l.field, kept)
		}
	}
	slices.Sort(missing)
	return bounded, missing[:min(len(missing), stream.MaxDropped)]
}

// ID tells one policy of projects from another.
func (p *Policy) ID() string {
	if p == nil {
		return ""
	}
	return stream.HashOf(object.Encode([][]string{p.Projects, p.DestinationNamespaces, p.ClusterResources,
		p.ServiceAccounts, p.SourceRepos})).String()
}

func withoutDestinations(spec map[string]any) (map[string]any, []string) {
	delete(spec, "destinations")
	return spec, []string{"spec.destinations"}
}

// bound is a list of a project that a rule of a policy bounds. An entry is admitted as a
// whole or not at all. denies says of one that is not admitted that it denies something
// too, and so may not be left out of the list; nil where none does. first says that the
// first entry which matches is the one, so that those behind one that is not admitted
// must not take its place.
type bound struct {
	field, rule    string
	first          bool
	admits, denies func(entry any) bool
	says           func(entry any) string
}

func (p *Policy) lists() []bound {
	return []bound{
		{
			field: "clusterResourceWhitelist", rule: "cluster_resources",
			admits: func(e any) bool { group, kind := groupKind(e); return p.clusterResource(group, kind) },
			says: func(e any) string {
				group, kind := groupKind(e)
				return "cluster resource \"" + group + "/" + kind + "\""
			},
		},
		{
			field: "destinationServiceAccounts", rule: "service_accounts", first: true,
			admits: func(e any) bool { return glob.Any(p.ServiceAccounts, textAt(e, "defaultServiceAccount")) },
			says:   func(e any) string { return fmt.Sprintf("service account %q", textAt(e, "defaultServiceAccount")) },
		},
		{
			field: "sourceRepos", rule: "source_repos",
			admits: func(e any) bool { s, _ := e.(string); return p.repoPattern(s) },
			denies: func(e any) bool { s, _ := e.(string); return glob.Negated(s) },
			says:   func(e any) string { return fmt.Sprintf("source repository %q", e) },
		},
		{
			field: "destinations", rule: "destination_namespaces",
			admits: p.destination,
			denies: func(e any) bool {
				return glob.Negated(textAt(e, "namespace")) || glob.Negated(textAt(e, "name")) || glob.Negated(textAt(e, "server"))
			},
			says: func(e any) string { return fmt.Sprintf("destination %q", textAt(e, "namespace")) },
		},
	}
}

// Admits says which entry of a project the policy does not admit; nil when there is none.
func (p *Policy) Admits(name string, spec map[string]any) *stream.Refusal {
	if p == nil {
		return nil
	}
	if refusal := p.Kind(KindProject); refusal != nil {
		return refusal
	}
	if refusal := p.Project(name); refusal != nil {
		return refusal
	}
	for _, l := range p.lists() {
		for _, entry := range object.ListAt(spec, l.field) {
			if !l.admits(entry) {
				return Denied(l.rule, "%s of the project", l.says(entry))
			}
		}
	}
	return nil
}

func textAt(entry any, name string) string {
	m, _ := entry.(map[string]any)
	return object.StringAt(m, name)
}

func groupKind(entry any) (group, kind string) { return textAt(entry, "group"), textAt(entry, "kind") }

// everywhere reports whether the policy leaves the namespaces open: then who may write
// them all bounds nothing by kinds.
func (p *Policy) everywhere() bool { return slices.Contains(p.DestinationNamespaces, "*") }

// clusterResource reports whether a project may admit objects outside of namespaces of a
// group and kind, each as a name or a pattern of Argo CD's.
func (p *Policy) clusterResource(group, kind string) bool {
	if len(p.ClusterResources) == 0 {
		return p.everywhere()
	}
	return slices.ContainsFunc(p.ClusterResources, func(pattern string) bool {
		groups, kinds, _ := strings.Cut(pattern, "/")
		return coversWord(groups, group) && coversWord(kinds, kind)
	})
}

// coversWord reports whether a pattern of ours matches all that a name or pattern of a
// Project does. Whether one pattern is within another is not guessed.
func coversWord(pattern, word string) bool {
	return pattern == "*" || pattern == word || !strings.ContainsAny(word, `*?[]{}\!/`) && glob.Matches(pattern, word)
}

// destination is about one of a project's.
func (p *Policy) destination(entry any) bool {
	m, _ := entry.(map[string]any)
	namespace := object.StringAt(m, "namespace")
	switch {
	case p.everywhere(), deniesHere(m):
		return true
	case glob.Negated(namespace):
		return false
	}
	return slices.Contains(p.DestinationNamespaces, namespace) ||
		!strings.ContainsAny(namespace, "*?[{\\/") && glob.Any(p.DestinationNamespaces, namespace)
}

// repoPattern is about one of a project's SourceRepos. To Argo CD one that begins with an
// exclamation mark permits all others.
func (p *Policy) repoPattern(pattern string) bool {
	if slices.Contains(p.SourceRepos, "*") || !glob.Negated(pattern) && slices.Contains(p.SourceRepos, pattern) {
		return true
	}
	return !strings.ContainsAny(pattern, `*?[]{}\!`) && p.repo(pattern)
}
