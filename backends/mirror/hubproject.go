package mirror

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// What an Application may deploy on a spoke follows from its AppProject there. The hub
// sends one only if its own project admits it; that bounds it on the spoke only while the
// project there is the copy of the hub's. A project of the spoke's owner says nothing of
// the hub's Applications, and one that permits everything, as each argocd-server makes,
// would let them do everything. So an Application of the hub that names another project
// than a copy is refused, with its operations, unless the owner has named the project.

// hubProject says why an Application of the hub may not name an AppProject of the spoke;
// nil when it may. project is the one of that name; nil when there is none.
func (r Rules) hubProject(name string, project *object) *stream.Refusal {
	switch {
	case r.Side != stream.Spoke || r.Mode != stream.Managed || r.Policy == nil, slices.Contains(r.Policy.Projects, name), !r.Policy.AppProjects():
		return nil
	case r.Policy.project(name) != nil:
		return r.Policy.project(name)
	case project == nil:
		if r.takes(stream.ResourceKey{Kind: stream.AppProject, Namespace: r.Namespace, Name: name}, nil) == nil {
			return onItsWay(name)
		}
	case r.isCopy(*project) && r.ofThisHub(*project):
		return nil
	case r.isCopy(*project) && !r.Inherits:
		return r.othersCopy(*project)
	case r.isCopy(*project), !hasRecord(*project) && r.adoption(*project) == nil:
		return onItsWay(name)
	}
	switches := ""
	if name == defaultProject {
		switches = "; the hub's comes with projects.share_default of the principal and appproject/default in policy.adopt of the spoke"
	}
	return denied("projects", "project %q by its very name, and the one on the spoke is not the hub's%s", name, switches)
}

// onItsWay is the answer while the hub's AppProject of that name may still come.
func onItsWay(name string) *stream.Refusal {
	message := fmt.Sprintf("AppProject %q of the hub is not on the spoke yet", name)
	if name == defaultProject {
		message += "; the hub sends it with projects.share_default"
	}
	return &stream.Refusal{Kind: stream.RefusalUnavailable, Message: message, Awaits: name}
}

// neverSent is the answer of a spoke to an Application that waits for an AppProject, when
// the hub has that and does not send it, so that waiting alone is of no use; the answer as
// it came otherwise.
func (r Rules) neverSent(refusal stream.Refusal, name string, project *object) stream.Refusal {
	if refusal.Kind != stream.RefusalUnavailable || refusal.Awaits != name || project == nil {
		return refusal
	}
	if _, sent := r.Content(stream.AppProjects, *project, Requests{}); sent {
		return refusal
	}
	why := "it is not for this agent"
	switch {
	case project.label(ignoreSyncKey) == "true":
		why = "it has label " + ignoreSyncKey
	case !r.shares(name):
		why = "projects.share_default of the principal is off"
	case r.uidIn(stream.AppProjects, *project) == "":
		why = "it is a mirror of an agent's AppProject"
	}
	return stream.Refusal{
		Kind: stream.RefusalDenied, Message: fmt.Sprintf("AppProject %q of the hub is not on the spoke, and the hub does not send it: %s", name, why),
	}
}

// mayName is hubProject for an Application with that spec.
func (r Rules) mayName(spec map[string]any) *stream.Refusal {
	name := projectOf(spec)
	return r.hubProject(name, r.projectNamed(name))
}

// projectNamed is the AppProject of that name here; nil when there is none.
func (r Rules) projectNamed(name string) *object {
	if r.projects == nil {
		return nil
	}
	return r.projects(name)
}

// sought is the AppProject that a plan asked for last.
type sought struct {
	name  string
	found *object
}

// awaits is the AppProject for which the plan was refused; empty for none.
func (s sought) awaits(r Rules) string {
	if s.name == "" || r.hubProject(s.name, s.found) == nil {
		return ""
	}
	return s.name
}

// maxAwaiting bounds the entries that are remembered for their AppProject, since a peer
// can invent some. One beyond is tried again as the peer tries all that is refused.
const maxAwaiting = 1 << 16

// awaiting are entries of the peer that were refused for want of the hub's AppProject, and
// that project. They end with the connection, on which the peer tries again.
type awaiting struct {
	project map[stream.EntryKey]string
	entries map[string]map[stream.EntryKey]struct{} // by the project
}

func newAwaiting() awaiting {
	return awaiting{project: map[stream.EntryKey]string{}, entries: map[string]map[stream.EntryKey]struct{}{}}
}

// note notes which project an entry waits for; empty for none. It reports whether there was
// room.
func (a awaiting) note(entry stream.EntryKey, project string) bool {
	if before, waits := a.project[entry]; waits {
		if delete(a.entries[before], entry); len(a.entries[before]) == 0 {
			delete(a.entries, before)
		}
		delete(a.project, entry)
	}
	if project == "" || len(a.project) == maxAwaiting {
		return project == ""
	}
	a.project[entry] = project
	if a.entries[project] == nil {
		a.entries[project] = map[stream.EntryKey]struct{}{}
	}
	a.entries[project][entry] = struct{}{}
	return true
}

// await notes which AppProject an entry waits for, empty for none.
func (l *loop) await(entry stream.EntryKey, project string) {
	if !l.awaiting.note(entry, project) {
		l.m.cfg.Metrics.unremembered()
	}
	if project != "" {
		key := stream.ResourceKey{Kind: stream.AppProject, Namespace: l.rules.Namespace, Name: project}
		l.arrived(key, l.current(key)) // it may have come meanwhile
	}
}

// unsent is the answer of the spoke to an Application, by neverSent.
func (l *loop) unsent(refusal stream.Refusal, app object) stream.Refusal {
	name := projectOf(app.child("spec"))
	return l.rules.neverSent(refusal, name, l.current(stream.ResourceKey{Kind: stream.AppProject, Namespace: l.rules.Namespace, Name: name}))
}

// arrived has the peer try again what waits for an AppProject that is the hub's now.
func (l *loop) arrived(key stream.ResourceKey, current *object) {
	entries := l.awaiting.entries[key.Name]
	if key.Kind != stream.AppProject || len(entries) == 0 || l.rules.hubProject(key.Name, current) != nil {
		return
	}
	for _, entry := range slices.SortedFunc(maps.Keys(entries), func(a, b stream.EntryKey) int { return cmp.Compare(a.String(), b.String()) }) {
		l.awaiting.note(entry, "")
		l.step(link.Retry{Key: entry})
	}
}

// instead is the answer to an entry that waits for an AppProject which this spoke has
// refused: that will not come by itself.
func (l *loop) instead(project string, refusal *stream.Refusal) *stream.Refusal {
	because, refused := l.refused[stream.EntryKey{Collection: stream.AppProjects, Name: project}]
	if project == "" || !refused || refusal == nil || refusal.Kind != stream.RefusalUnavailable {
		return refusal
	}
	return &stream.Refusal{
		Kind: because.refusal.Kind, Message: fmt.Sprintf("AppProject %q of the hub is not on the spoke: %s", project, because.refusal.Message),
	}
}
