package mirror

import (
	"encoding/base64"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/stream"
)

// secretTypeKey is the label by which Argo CD finds its Secrets.
const secretTypeKey = "argocd.argoproj.io/secret-type"

// Values of secretTypeKey that are mirrored: one repository, a template for all whose
// URL begins so, and the same with rights to write, which the hydrator needs. Those
// of clusters never are.
const (
	typeRepository      = "repository"
	typeTemplate        = "repo-creds"
	typeWriteRepository = "repository-write"
	typeWriteTemplate   = "repo-write-creds"
)

var credentialTypes = []string{typeRepository, typeTemplate, typeWriteRepository, typeWriteTemplate}

// RepositorySelector is the label selector of the Secrets that may be mirrored. No
// other Secret need be read.
func RepositorySelector() string {
	return secretTypeKey + " in (" + strings.Join(credentialTypes, ",") + ")"
}

// isCredential reports whether a value of secretTypeKey is one that is mirrored.
func isCredential(secretType string) bool { return slices.Contains(credentialTypes, secretType) }

// mayWrite reports whether a Secret of that type may write to repositories.
func mayWrite(secretType string) bool {
	return secretType == typeWriteRepository || secretType == typeWriteTemplate
}

// repository is what a hub sends of a Secret, if it is one of those. Whether the
// agent needs it is not said here: see needs. The type of the Secret does not travel:
// it could make the spoke's API server do more than to store it.
func (r Rules) repository(o object) (map[string]any, bool) {
	secretType := o.label(secretTypeKey)
	if !isCredential(secretType) || o.annotation(sourceUIDKey) != "" || mayWrite(secretType) && !r.WriteCredentials {
		return nil, false
	}
	data := o.child("data")
	if data == nil {
		data = map[string]any{}
	}
	return map[string]any{
		"labels":      mirrored(o.child("metadata", "labels")),
		"annotations": mirrored(o.child("metadata", "annotations")),
		"data":        data,
	}, true
}

// planRepository makes the copy of a repository's Secret on the spoke. No Secret but
// a repository's is ever written over.
func (r Rules) planRepository(e stream.Event, key stream.ResourceKey, current *object) ([]Write, *stream.Refusal) {
	if e.Verb == stream.Delete {
		return r.gone(e, current)
	}
	content, refusal := contentOf(e, "the event's data")
	if refusal != nil {
		return nil, refusal
	}
	data, ok := content["data"].(map[string]any)
	labels, _ := content["labels"].(map[string]any)
	annotations, _ := content["annotations"].(map[string]any)
	switch {
	case !ok:
		return nil, invalid("the event carries no data")
	case !isCredential(stringAt(labels, secretTypeKey)):
		return nil, invalid("it is not the Secret of a repository")
	}
	if refusal := r.Policy.repository(stringAt(labels, secretTypeKey), data); refusal != nil {
		return nil, refusal
	}
	if refusal := r.outdated(e, current); refusal != nil {
		return nil, refusal
	}
	next, old := newObject(key), record{}
	adopts := false
	switch {
	case current == nil:
	case r.othersCopy(*current) != nil:
		return nil, r.othersCopy(*current)
	case !r.isCopy(*current) && !isCredential(current.label(secretTypeKey)):
		return nil, &stream.Refusal{
			Kind: stream.RefusalNotOwned, Message: "a Secret of that name on the spoke is not that of a repository; rename one of the two",
		}
	case current.deleting():
		return nil, &stream.Refusal{
			Kind: stream.RefusalUnavailable, Message: "the Secret is being deleted on the spoke; it is made anew when it is gone",
		}
	case !r.isCopy(*current):
		if refusal := r.adoption(*current); refusal != nil {
			return nil, refusal
		}
		next, old, adopts = current.clone(), record{Adopted: current.uid()}, true
	default:
		next = current.clone()
		old, _ = recordOf(next)
	}
	next = r.write(next, old, e, data, mirrored(labels), mirrored(annotations))
	switch {
	case current == nil:
		return []Write{{Op: Create, Raw: encode(next.fields)}}, nil
	case adopts:
		return adopt(*current, next), nil
	}
	return update(*current, next), nil
}

// secretField is the value of a key of a Secret's data; empty when it is none.
func secretField(data map[string]any, key string) string {
	value, err := base64.StdEncoding.DecodeString(stringAt(data, key))
	if err != nil {
		return ""
	}
	return string(value)
}

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

// repositoriesOf are the repositories that an Application reads or writes.
func repositoriesOf(o object) []string {
	spec := o.child("spec")
	sources, _ := spec["sources"].([]any)
	sources = append(slices.Clone(sources), spec["source"])
	if hydrator, ok := spec["sourceHydrator"].(map[string]any); ok {
		sources = append(sources, hydrator["drySource"])
	}
	var urls []string
	for _, s := range sources {
		if source, _ := s.(map[string]any); stringAt(source, "repoURL") != "" {
			urls = append(urls, sameRepository(stringAt(source, "repoURL")))
		}
	}
	slices.Sort(urls)
	return slices.Compact(urls)
}

// needs is what the hub knows of a managed agent by which it tells which Secrets are
// for it: one with a project if the agent gets that project; one without if the hub
// shares such and an Application of the agent uses its URL.
type needs struct {
	projects map[string]bool // AppProjects that the agent gets
	// urls counts by how many Applications a repository is used, and byApp says by
	// which; both are kept only when Secrets without a project are shared.
	urls  map[string]int
	byApp map[string][]string
}

func newNeeds() needs {
	return needs{projects: map[string]bool{}, urls: map[string]int{}, byApp: map[string][]string{}}
}

// admit notes whether the agent gets a project, and reports whether that is news.
func (n needs) admit(project string, admitted bool) (news bool) {
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

// use notes which repositories an Application of the agent uses, none for one that is
// not the agent's, and reports whether it is the first to use one, or was the last.
func (n needs) use(app string, urls []string) (news bool) {
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

// wants reports whether a Secret of a repository is for the agent.
func (n needs) wants(o object, shared bool) bool {
	data := o.child("data")
	if project := secretField(data, "project"); project != "" {
		return n.projects[project]
	}
	url := secretField(data, "url")
	if !shared || url == "" {
		return false
	}
	switch o.label(secretTypeKey) {
	case typeTemplate, typeWriteTemplate:
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
// nobody gets the credentials of git.test by a repository of git.test.example.
func coverage(template string) func(used string) bool {
	prefix := sameRepository(template)
	_, rest, _ := strings.Cut(prefix, "://")
	whole := strings.HasSuffix(strings.TrimSpace(template), "/") || !strings.Contains(rest, "/")
	return func(used string) bool {
		below, begins := strings.CutPrefix(used, prefix)
		return begins && (!whole || below == "" || below[0] == '/' || below[0] == ':')
	}
}
