package policy

import (
	"net/url"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/backends/glob"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/stream"
)

// repo is about the URL of one repository. Unlike elsewhere, an asterisk stays within one
// segment of the path, as in a project of Argo CD's, and two do not.
func (p *Policy) repo(repository string) bool {
	return slices.ContainsFunc(p.SourceRepos, func(pattern string) bool {
		if pattern == "*" || pattern == repository {
			return true
		}
		separators, plain := plainRepository(repository)
		if !plain {
			return false
		}
		matches, err := glob.Compile(pattern, separators...)
		return err == nil && matches(repository)
	})
}

// plainRepository reports whether the URL of a repository surely means what a pattern that
// matches it says: that host, and that path. It returns what an asterisk stops at. What
// stands for *.example.org must not be "evil.test?" or "evil.test:", behind which the rest
// is no host any more.
func plainRepository(repository string) (separators []rune, plain bool) {
	if strings.ContainsFunc(repository,
		func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`%?#\`, c) }) {
		return nil, false
	}
	if slices.Contains(strings.Split(repository, "/"), "..") {
		return nil, false // what a server makes of the path is not known here
	}
	_, rest, found := strings.Cut(repository, "://")
	if !found { // user@host:path, and the registry of a chart
		return []rune{'/', ':'}, strings.Count(repository, "@") <= 1
	}
	authority, _, _ := strings.Cut(rest, "/")
	_, err := url.Parse(repository)
	return []rune{'/'}, err == nil && strings.Count(authority, "@") <= 1
}

// Sources is about the repositories from which an Application with that spec, or a sync
// Operation, is to be deployed.
func (p *Policy) Sources(spec map[string]any) *stream.Refusal {
	if p == nil || slices.Contains(p.SourceRepos, "*") {
		return nil
	}
	sources := slices.Clone(object.ListAt(spec, "sources"))
	if spec["source"] != nil {
		sources = append(sources, spec["source"])
	}
	if hydrator, ok := spec["sourceHydrator"].(map[string]any); ok {
		sources = append(sources, hydrator["drySource"])
		if textAt(hydrator["syncSource"], "repoURL") != "" {
			sources = append(sources, hydrator["syncSource"])
		}
	}
	for _, source := range sources {
		if url := textAt(source, "repoURL"); !p.repo(url) && (url != "" || len(sources) == 1) {
			return Denied("source_repos", "repository %q", url)
		}
		m, _ := source.(map[string]any)
		kustomize, _ := m["kustomize"].(map[string]any)
		for _, c := range object.ListAt(kustomize, "components") {
			if component, _ := c.(string); ofElsewhere(component) {
				return Denied("source_repos", "kustomize component %q, which is of another repository", component)
			}
		}
	}
	return nil
}

// ofElsewhere reports whether kustomize may take a component for one that it has to fetch,
// not for a path in the repository of its source: what has a scheme or a user, and what
// begins with the name of the one host that needs neither.
func ofElsewhere(component string) bool {
	first, _, _ := strings.Cut(strings.ToLower(component), "/")
	return strings.ContainsAny(component, ":@") || first == "github.com" || first == "www.github.com"
}
