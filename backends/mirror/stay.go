package mirror

import (
	"bytes"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// Argo CD needs the AppProject of an Application to delete it, and what it may delete is
// what the project permits. So a project does not leave a spoke before the Applications
// that name it: see loop.stay for the hub, and stays and permitsNothing for the spoke.

// uses says which AppProjects the Applications that a managed agent gets name.
type uses struct {
	byApp     map[string]use
	byProject map[string]*users
}

type use struct {
	users *users
	going bool
}

// users are the Applications that name one project, and those of them that are being
// deleted with their workloads.
type users struct {
	project    string
	all, going int
}

func newUses() uses { return uses{byApp: map[string]use{}, byProject: map[string]*users{}} }

// of are the users of a project; zero when there are none.
func (u uses) of(project string) users {
	if found := u.byProject[project]; found != nil {
		return *found
	}
	return users{}
}

// note takes which project an Application names now, empty for one that the agent does
// not get. It returns the projects for which that makes a difference.
func (u uses) note(app, project string, going bool) (news []string) {
	before, known := u.byApp[app]
	if known && before.users.project == project && before.going == going || !known && project == "" {
		return nil
	}
	if known {
		news = u.count(before.users, -1, before.going, news)
		delete(u.byApp, app)
	}
	if project != "" {
		found := u.byProject[project]
		if found == nil {
			found = &users{project: project}
			u.byProject[project] = found
		}
		news = u.count(found, 1, going, news)
		u.byApp[app] = use{found, going}
	}
	return news
}

// count adds an Application to the users of a project, or takes it away, and adds the
// project to news if it is the first, or the last.
func (u uses) count(of *users, n int, going bool, news []string) []string {
	was := *of
	of.all += n
	if going {
		of.going += n
	}
	if of.all == 0 {
		delete(u.byProject, of.project)
	}
	if (was.all == 0) != (of.all == 0) || (was.going == 0) != (of.going == 0) {
		news = append(news, of.project)
	}
	return news
}

// users notes the AppProject that an Application names, and lets those be looked at again
// for which that makes a difference.
func (l *loop) users(entry stream.EntryKey, current *object, content link.Content) {
	project := ""
	if current != nil && !content.Version.Absent() {
		project = projectOf(current.child("spec"))
	}
	l.revisited = append(l.revisited, l.uses.note(entry.Namespace+"/"+entry.Name, project, content.Leaving)...)
}

// revisit looks again at AppProjects whose users have changed.
func (l *loop) revisit() {
	for len(l.revisited) > 0 {
		names := l.revisited
		l.revisited = nil
		for _, name := range names {
			l.observe(stream.ResourceKey{Kind: stream.AppProject, Namespace: l.rules.Namespace, Name: name})
		}
	}
}

// revisitAll lets all AppProjects be looked at again that an Application names.
func (l *loop) revisitAll() {
	for name := range l.uses.byProject {
		l.revisited = append(l.revisited, name)
	}
}

// stay is what the spoke goes on having of an AppProject that the agent is not to get any
// more: as long as an Application that is going names it, what it has; and as long as
// any other does, a project that permits nothing. open says that the project is as it was,
// so that its Secrets are needed. current is nil when the hub has no such project.
func (l *loop) stay(entry stream.EntryKey, current *object) (content link.Content, open bool) {
	if entry.Collection == stream.Applications && current != nil && l.barredStays(current.key, *current) {
		return link.Content{Version: l.link.Believed(entry)}, false // and so nothing is sent
	}
	if entry.Collection != stream.AppProjects || l.rules.Side != stream.Hub || l.rules.Mode != stream.Managed || !l.rules.shares(entry.Name) {
		return link.Content{}, false
	}
	held, users := l.link.Believed(entry), l.uses.of(entry.Name)
	switch {
	case held.Absent():
		return link.Content{}, false // nothing is there that could stay
	case users.going > 0:
		return link.Content{Version: held}, true // and so nothing is sent
	case users.all > 0 && current != nil:
		return l.rules.closed(*current), false
	}
	return link.Content{}, false
}

// closed is the content of an AppProject of the hub that permits a spoke no destination.
func (r Rules) closed(o object) link.Content {
	content := link.Content{Revision: o.revision()}
	if content.Version.SourceUID = r.uidIn(stream.AppProjects, o); content.Version.SourceUID == "" ||
		o.label(ignoreSyncKey) == "true" || isForeign(o) {
		return link.Content{}
	}
	spec := map[string]any{"destinations": []any{}}
	for _, field := range []string{
		"description", "sourceRepos", "clusterResourceWhitelist", "clusterResourceBlacklist", "namespaceResourceWhitelist", "namespaceResourceBlacklist",
	} {
		if value, has := o.child("spec")[field]; has {
			spec[field] = value
		}
	}
	content.Data = encode(canonical(o, spec))
	content.Version.Hash = stream.HashOf(content.Data)
	return content
}

// stays is the answer of a spoke to the release of an AppProject that one of its going
// copies names.
var stays = stream.Refusal{
	Kind:    stream.RefusalUnavailable,
	Message: "an Application on the spoke that is being deleted names the AppProject; it goes when that is gone",
}

// permitsNothing is the answer of a spoke to the release of an AppProject that copies name
// which are not going. The hub may not know of them: its Application may name another
// project by now, that does not admit it.
var permitsNothing = stream.Refusal{
	Kind:    stream.RefusalUnavailable,
	Message: "an Application of the hub on the spoke names the AppProject; it permits nothing there, and goes when that is gone",
}

// withhold takes all destinations from a copy of an AppProject. That does not count as what
// the hub sent, which so sends it again if it is to be there again.
func withhold(current object) []Write {
	if destinations, is := current.child("spec")["destinations"].([]any); is && len(destinations) == 0 {
		return nil
	}
	next := current.clone()
	next.ensure("spec")["destinations"] = []any{}
	return update(current, next)
}

// projectNeed is for what a spoke needs the copy of an AppProject.
type projectNeed uint8

const (
	forNothing projectNeed = iota
	// forCopy: a copy that is not going names it.
	forCopy
	// forCascade: Argo CD deletes the workloads of a copy that names it.
	forCascade
)

// needed says for what copies on the spoke need an AppProject.
func (m *Mirror) needed(r Rules, project string) projectNeed {
	needed := forNothing
	for _, namespace := range r.namespaces() {
		for _, stored := range m.cfg.Store.List(stream.Application, namespace) {
			if !bytes.Contains(stored.Raw, []byte(project)) && project != defaultProject || len(r.Keys(stored.Key)) == 0 {
				continue
			}
			o, err := parseObject(stored)
			if err != nil || !r.isCopy(o) || projectOf(o.child("spec")) != project {
				continue
			}
			if rec, _ := recordOf(o); rec.Leaving || o.cascades() {
				return forCascade
			}
			needed = forCopy
		}
	}
	return needed
}
