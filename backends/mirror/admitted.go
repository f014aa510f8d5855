package mirror

import (
	"fmt"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/stream"
)

// A project that is on the spoke when its owner's policy becomes narrower, as by an
// upgrade to a release with more rules, must not go on admitting what the policy does
// not: Argo CD acts on it without the hub. So it keeps those entries that the policy
// admits as a whole. Globs are not cut, since a part of one cannot be written; nothing
// that denies or restrains goes; and no list becomes empty where Argo CD takes that for
// all. Where this leaves nothing, the project has no destinations, and so admits nothing.

// Bounded is the spec of a project, of that name, of which is left what the policy
// admits, and the paths of what is not, sorted by field, at most stream.MaxDropped; the
// spec as it is, and none, when the policy admits all of it. What it is given is not
// changed.
func (p *Policy) Bounded(name string, spec map[string]any) (bounded map[string]any, missing []string) {
	if p.admits(name, spec) == nil {
		return spec, nil
	}
	bounded, _ = clone(spec).(map[string]any)
	switch {
	case p.kind(kindProject) != nil:
		return spec, nil // AppProjects are the owner's, and so are those that the hub left
	case p.project(name) != nil:
		return withoutDestinations(bounded)
	}
	for _, l := range p.lists() {
		var kept []any
		lost := false
		for i, entry := range listAt(spec, l.field) {
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
			setList(bounded, l.field, kept)
		}
	}
	slices.Sort(missing)
	return bounded, missing[:min(len(missing), stream.MaxDropped)]
}

// tendBounds is the write by which a copy of a project keeps what the policy admits;
// false when it has nothing else.
func (r Rules) tendBounds(current object) ([]byte, bool) {
	if r.Side != stream.Spoke || r.Mode != stream.Managed || current.key.Kind != stream.AppProject || current.deleting() || !hasRecord(current) {
		return nil, false
	}
	// Of which hub it is makes no difference, and is not known before the first connection.
	rec, _ := recordOf(current)
	if rec.Agent != "" && rec.Agent != r.Agent.String() || rec.Child {
		return nil, false
	}
	bounded, missing := r.Policy.Bounded(current.key.Name, current.child("spec"))
	if len(missing) == 0 {
		return nil, false
	}
	agreed := rec.Wrote == stream.HashOf(owned(current, rec)).String()
	next := current.clone()
	next.fields["spec"] = bounded
	r.lack(&rec, missing)
	if agreed {
		r.stamp(next, rec)
	} else {
		next.setAnnotation(recordKey, string(encode(rec))) // what somebody changed beside stays to be seen
	}
	return encode(next.fields), true
}

// lack notes in the record of a project what the policy left out of it.
func (r Rules) lack(rec *record, missing []string) {
	if len(missing) == 0 {
		return
	}
	all := append(slices.Clone(rec.Dropped), missing...)
	slices.Sort(all)
	all = slices.Compact(all)
	rec.Dropped, rec.Bounds = all[:min(len(all), stream.MaxDropped)], r.Policy.id()
}

// keeps reports whether an event is about the very content of a project that is there
// already, which then stays within what the policy admits. Only what is new is refused.
func (r Rules) keeps(e stream.Event, current *object) bool {
	if r.Side != stream.Spoke || e.Key.Collection != stream.AppProjects || current == nil || !r.isCopy(*current) || r.Policy.kind(kindProject) != nil {
		return false
	}
	rec, _ := recordOf(*current)
	return rec.Hash == e.Version.Hash.String() && r.sourceUID(*current) == e.Version.SourceUID
}

// id tells one policy of projects from another.
func (p *Policy) id() string {
	if p == nil {
		return ""
	}
	return stream.HashOf(encode([][]string{p.Projects, p.DestinationNamespaces, p.ClusterResources, p.ServiceAccounts, p.SourceRepos})).String()
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
			admits: func(e any) bool { return anyGlob(p.ServiceAccounts, textAt(e, "defaultServiceAccount")) },
			says:   func(e any) string { return fmt.Sprintf("service account %q", textAt(e, "defaultServiceAccount")) },
		},
		{
			field: "sourceRepos", rule: "source_repos",
			admits: func(e any) bool { s, _ := e.(string); return p.repoPattern(s) },
			denies: func(e any) bool { s, _ := e.(string); return negated(s) },
			says:   func(e any) string { return fmt.Sprintf("source repository %q", e) },
		},
		{
			field: "destinations", rule: "destination_namespaces",
			admits: p.destination,
			denies: func(e any) bool {
				return negated(textAt(e, "namespace")) || negated(textAt(e, "name")) || negated(textAt(e, "server"))
			},
			says: func(e any) string { return fmt.Sprintf("destination %q", textAt(e, "namespace")) },
		},
	}
}

// admits says which entry of a project the policy does not admit; nil when there is none.
func (p *Policy) admits(name string, spec map[string]any) *stream.Refusal {
	if p == nil {
		return nil
	}
	if refusal := p.kind(kindProject); refusal != nil {
		return refusal
	}
	if refusal := p.project(name); refusal != nil {
		return refusal
	}
	for _, l := range p.lists() {
		for _, entry := range listAt(spec, l.field) {
			if !l.admits(entry) {
				return denied(l.rule, "%s of the project", l.says(entry))
			}
		}
	}
	return nil
}

func textAt(entry any, name string) string {
	m, _ := entry.(map[string]any)
	return stringAt(m, name)
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
// project does. Whether one pattern is within another is not guessed.
func coversWord(pattern, word string) bool {
	return pattern == "*" || pattern == word || !strings.ContainsAny(word, `*?[]{}\!/`) && globMatches(pattern, word)
}

// destination is about one of a project's.
func (p *Policy) destination(entry any) bool {
	m, _ := entry.(map[string]any)
	namespace := stringAt(m, "namespace")
	switch {
	case p.everywhere(), deniesHere(m):
		return true
	case negated(namespace):
		return false
	}
	return slices.Contains(p.DestinationNamespaces, namespace) ||
		!strings.ContainsAny(namespace, "*?[{\\/") && anyGlob(p.DestinationNamespaces, namespace)
}

// repoPattern is about one of a project's sourceRepos. To Argo CD one that begins with an
// exclamation mark permits all others.
func (p *Policy) repoPattern(pattern string) bool {
	if slices.Contains(p.SourceRepos, "*") || !negated(pattern) && slices.Contains(p.SourceRepos, pattern) {
		return true
	}
	return !strings.ContainsAny(pattern, `*?[]{}\!`) && p.repo(pattern)
}
