// Package needs knows, of the Applications that a managed agent gets, what they make needed on the
// spoke beside them: Needs of credentials for repositories, Uses of AppProjects. Pure.
package needs

import (
	"slices"
	"strings"

	"github.com/argomesh/argomesh/backends/object"
)

// sameRepository brings a URL into a form in which two of one repository are mostly
// equal, as Argo CD compares them: in lower case, without user and ".git", and the
// short form of SSH written out.
func sameRepository(url string) string {
	url = strings.ToLower(strings.TrimSpace(url))
	scheme, rest, found := strings.Cut(url, "://")
	if !found {
		if _, host, user := strings.Cut(url, "@"); user {
			scheme, rest = "ssh", strings.Replace(host, ":", "/", 1)
		} else {
			scheme, rest = "", url
		}
	}
	if host, path, _ := strings.Cut(rest, "/"); strings.Contains(host, "@") {
		rest = host[strings.LastIndex(host, "@")+1:] + "/" + path
	}
	rest = strings.TrimSuffix(strings.TrimRight(rest, "/"), ".git")
	return scheme + "://" + rest
}

// RepositoriesOf are the repositories that an Application reads or writes.
func RepositoriesOf(o object.Object) []string {
	spec := o.Child("spec")
	sources, _ := spec["sources"].([]any)
	sources = append(slices.Clone(sources), spec["source"])
	if hydrator, ok := spec["sourceHydrator"].(map[string]any); ok {
		sources = append(sources, hydrator["drySource"])
	}
	var urls []string
	for _, s := range sources {
		if source, _ := s.(map[string]any); object.StringAt(source, "repoURL") != "" {
			urls = append(urls, sameRepository(object.StringAt(source, "repoURL")))
		}
	}
	slices.Sort(urls)
	return slices.Compact(urls)
}

// Needs is what the hub knows of a managed agent by which it tells which Secrets are
// for it: one with a project if the agent gets that project; one without if the hub
// shares such and an Application of the agent uses its URL.
type Needs struct {
	projects map[string]bool // AppProjects that the agent gets
	// urls counts by how many Applications a repository is used, and byApp says by
	// which; both are kept only when Secrets without a project are shared.
	urls  map[string]int
	byApp map[string][]string
}

// NewNeeds returns the needs of no Application.
func NewNeeds() Needs {
	return Needs{projects: map[string]bool{}, urls: map[string]int{}, byApp: map[string][]string{}}
}

// Admit notes whether the agent gets a project, and reports whether that is news.
func (n Needs) Admit(project string, admitted bool) (news bool) {
	if n.projects[project] == admitted {
		return false
	}
	if admitted {
		n.projects[project] = true
	} else {
		delete(n.projects, project)
	}
	return true
}

// Use notes which repositories an Application of the agent uses, none for one that is
// not the agent's, and reports whether it is the first to use one, or was the last.
func (n Needs) Use(app string, urls []string) (news bool) {
	before := n.byApp[app]
	if slices.Equal(before, urls) {
		return false
	}
	for _, url := range urls {
		n.urls[url]++
		news = news || n.urls[url] == 1
	}
	for _, url := range before {
		if n.urls[url]--; n.urls[url] == 0 {
			delete(n.urls, url)
			news = true
		}
	}
	if n.byApp[app] = urls; len(urls) == 0 {
		delete(n.byApp, app)
	}
	return news
}

// Wants reports whether a Secret of a repository is for the agent.
func (n Needs) Wants(o object.Object, shared bool) bool {
	data := o.Child("data")
	if project := object.SecretField(data, "project"); project != "" {
		return n.projects[project]
	}
	url := object.SecretField(data, "url")
	if !shared || url == "" {
		return false
	}
	switch o.Label(object.SecretTypeKey) {
	case object.TemplateType, object.WriteTemplateType:
		covers := coverage(url)
		for used := range n.urls {
			if covers(used) {
				return true
			}
		}
		return false
	}
	return n.urls[sameRepository(url)] > 0
}

// coverage tells which URLs, in the form of sameRepository, a template with that URL is
// for: those that begin with it. As to Argo CD one that ends with a slash is for what is
// below; and one that names no more than a host is for that host alone, so that
// no one gets the credentials of git.test by a repository of git.test.example.
func coverage(template string) func(used string) bool {
	prefix := sameRepository(template)
	_, rest, _ := strings.Cut(prefix, "://")
	whole := strings.HasSuffix(strings.TrimSpace(template), "/") || !strings.Contains(rest, "/")
	return func(used string) bool {
		below, begins := strings.CutPrefix(used, prefix)
		return begins && (!whole || below == "" || below[0] == '/' || below[0] == ':')
	}
}
