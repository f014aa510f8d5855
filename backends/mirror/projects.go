package mirror

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/argomesh/argomesh/backends/admission"
	"github.com/argomesh/argomesh/backends/needs"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/link"
)

// projects is what hangs together with AppProjects on the hub of a managed agent: which
// Applications they admit, what is merged into them, and which of them, and which credentials,
// the agent needs.
type projects struct {
	*shared
	// namedProjects say which Applications of the hub the AppProjects that they name admit.
	namedProjects admission.NamedProjects
	// repositoryNeeds says which Secrets of repositories are for the agent, and unselected that
	// it has changed since they were looked at.
	repositoryNeeds needs.Needs
	// uses says which Applications name an AppProject, and revisited for which projects
	// that has changed since they were looked at.
	uses needs.Uses
	// globals are merged into AppProjects, and unmerged says that they, or one of those,
	// have changed since AppProjects were looked at.
	globals    admission.Globals
	unmerged   bool
	revisited  []string
	unselected bool
}

// An AppProject of the hub says which Applications may use it: of which namespaces, with
// which repositories, for which destinations. Argo CD's controller asks it before it does
// anything, and the hub's leaves the clusters of agents alone. On a spoke the Application
// is in another namespace, and the copy of the project knows nothing of the hub's. So the
// hub asks, by Argo CD's rules (GetAppProject and ValidatePermissions), before anything of
// an Application leaves it.

// admission is what an AppProject of the hub admits now. While all that name a changed
// project wait to be looked at again, Admissions keeps what it admitted before.
func (p *projects) admission(project string) admission.Admission {
	a, made := p.namedProjects.Admissions[project]
	if made && !p.namedProjects.Stale[project] {
		return a
	}
	key := stream.ResourceKey{Kind: stream.AppProject, Namespace: p.rules.Namespace, Name: project}
	current := p.view.Current(key)
	if current != nil {
		merged := p.virtual(*current)
		current = &merged
	}
	a = admission.Of(project, current, p.namedProjects.Repositories(project))
	if p.globals.Err != nil {
		a.Unknown = p.globals.Err.Error()
	}
	if !p.namedProjects.Stale[project] {
		p.namedProjects.Admissions[project] = a
	}
	return a
}

// admit notes which project an Application of the hub names, and whether that admits it.
func (p *projects) admit(key stream.ResourceKey, current *object.Object) {
	switch {
	case !p.rules.NeedsAdmission():
	case key.Kind == stream.AppProject:
		p.namedProjects.MarkStale(key.Name)
	case key.Kind == stream.Secret:
		p.namedProjects.Scope(key, current)
	case key.Kind != stream.Application:
	case current == nil || p.rules.SourceUID(*current) == "" || p.rules.Unsendable(*current) != "":
		p.namedProjects.Name(key, "")
	default:
		project := object.ProjectOf(current.Child("spec"))
		p.namedProjects.Name(key, project)
		if why := p.rules.Bars(p.admission(project), *current); why != "" {
			p.namedProjects.Barred[key] = why
		} else {
			delete(p.namedProjects.Barred, key)
		}
	}
}

// readmit looks again at the Applications of projects that admit something else now.
func (p *projects) readmit() {
	for _, project := range slices.Sorted(maps.Keys(p.namedProjects.Stale)) {
		before := p.namedProjects.Admissions[project]
		delete(p.namedProjects.Admissions, project)
		delete(p.namedProjects.Stale, project)
		if !p.admission(project).Same(before) {
			p.observeApplications(maps.Keys(p.namedProjects.Applications[project]))
		}
	}
}

// observeApplications observes Applications in order.
func (p *projects) observeApplications(apps iter.Seq[stream.ResourceKey]) {
	for _, app := range slices.SortedFunc(apps, func(a, b stream.ResourceKey) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}) {
		p.observe(app)
	}
}

// barredStays reports whether what the spoke has of an Application stays as it is, since the
// project does not admit it any more. Who asks for its end, or that the spoke does not have
// it, gets that.
func (p *projects) barredStays(key stream.ResourceKey, current object.Object) bool {
	return p.namedProjects.Barred[key] != "" && !current.Deleting() && current.Label(object.IgnoreSyncKey) != "true"
}

// passes reports whether content of an Application, or a command for it, may leave the
// hub. What announces its own end always does.
func (p *projects) passes(entry stream.EntryKey, key stream.ResourceKey, leaving bool) bool {
	return entry.Collection != stream.Applications && entry.Collection != stream.Commands || leaving ||
		p.namedProjects.Barred[key] == ""
}

// Global projects of Argo CD restrain, and open, all projects with certain labels. Its
// settings name them, and each of its controllers merges them into a project whenever it
// asks one (GetAppVirtualProject). The other side has other settings, so what is sent
// of a project has them in it.

// readGlobals reads the settings again if they have changed, and reports whether they
// had. They are the source's: a sink asks no one.
func (p *projects) readGlobals() (changed bool) {
	if !p.rules.Sources(stream.AppProjects) {
		return false
	}
	next := admission.Globals{}
	settings := p.view.Current(stream.ResourceKey{Kind: stream.ConfigMap, Namespace: p.rules.Namespace,
		Name: admission.SettingsName})
	if settings != nil {
		next.From = settings.UID() + "/" + settings.Meta("resourceVersion")
	}
	if next.From == p.globals.From {
		return false
	}
	if settings != nil {
		next.Projects, next.Err = admission.GlobalsOf(settings.Child("data"))
	}
	switch {
	case next.Err != nil:
		p.env.cfg.Log.Warn().Err(next.Err).
			Msg("cannot read the global projects; AppProjects and repository Secrets on the spoke stay unchanged until this succeeds")
	case p.globals.Err != nil:
		p.env.cfg.Log.Info().Msg("global projects can be read again")
	}
	p.globals = next
	return true
}

// checkGlobals notes that all projects are to be looked at again when what is merged
// into them has changed.
func (p *projects) checkGlobals(key stream.ResourceKey) {
	switch {
	case key.Kind == stream.ConfigMap && key.Name == admission.SettingsName && key.Namespace == p.rules.Namespace:
		p.unmerged = p.readGlobals() || p.unmerged
	case key.Kind == stream.AppProject && p.globals.Names(key.Name):
		p.unmerged = true
	}
}

// mergeGlobals looks at all projects again if that was noted.
func (p *projects) mergeGlobals() {
	if !p.unmerged {
		return
	}
	p.unmerged = false
	for _, o := range p.env.cfg.Store.List(stream.AppProject, p.rules.Namespace) {
		p.observe(o.Key)
	}
	p.applyPauses() // what may leave hangs on whether they can be told
}

// virtual is a project of this side as its Argo CD asks it.
func (p *projects) virtual(project object.Object) object.Object {
	return admission.Virtual(project, p.globals.Of(project, func(name string) *object.Object {
		return p.view.Current(stream.ResourceKey{Kind: stream.AppProject, Namespace: p.rules.Namespace, Name: name})
	}))
}

// globalsRefusal is how people learn, as of a refusal, that the global projects cannot be told.
func (p *projects) globalsRefusal() (entry stream.EntryKey, refusal stream.Refusal, is bool) {
	if p.globals.Err == nil {
		return entry, refusal, false
	}
	return stream.EntryKey{Collection: stream.Trust, Name: admission.SettingsName},
		*stream.Invalid(p.globals.Err.Error() + "; AppProjects and Secrets of repositories stay as they are on the spoke"),
		true
}

// Argo CD needs the AppProject of an Application to delete it, and what it may delete is
// what the project permits. So a project does not leave a spoke before the Applications
// that name it: see projects.retained for the hub, and stays and permitsNothing for the spoke.

// users notes the AppProject that an Application names, and lets those be looked at again
// for which that makes a difference.
func (p *projects) users(entry stream.EntryKey, current *object.Object, content link.Content) {
	project := ""
	if current != nil && !content.Version.Absent() {
		project = object.ProjectOf(current.Child("spec"))
	}
	p.revisited = append(p.revisited, p.uses.Set(entry.Namespace+"/"+entry.Name, project, content.Leaving)...)
}

// revisit looks again at AppProjects whose users have changed.
func (p *projects) revisit() {
	for len(p.revisited) > 0 {
		names := p.revisited
		p.revisited = nil
		for _, name := range names {
			p.observe(stream.ResourceKey{Kind: stream.AppProject, Namespace: p.rules.Namespace, Name: name})
		}
	}
}

// revisitAll lets all AppProjects be looked at again that an Application names.
func (p *projects) revisitAll() {
	for name := range p.uses.ByProject {
		p.revisited = append(p.revisited, name)
	}
}

// retained is what the spoke goes on having of an AppProject that the agent is not to get any
// more: as long as an Application that is going names it, what it has; and as long as
// any other does, a project that permits nothing. open says that the project is as it was,
// so that its Secrets are needed. current is nil when the hub has no such project.
func (p *projects) retained(entry stream.EntryKey, current *object.Object) (content link.Content, open bool) {
	if entry.Collection == stream.Applications && current != nil && p.barredStays(current.Key, *current) {
		return link.Content{Version: p.link.Believed(entry)}, false // and so nothing is sent
	}
	if entry.Collection != stream.AppProjects || p.rules.Side != stream.Hub || p.rules.Mode != stream.Managed ||
		!p.rules.Shares(entry.Name) {
		return link.Content{}, false
	}
	believed, users := p.link.Believed(entry), p.uses.Of(entry.Name)
	switch {
	case believed.Absent():
		return link.Content{}, false // nothing is there that could stay
	case users.Going > 0:
		return link.Content{Version: believed}, true // and so nothing is sent
	case users.All > 0 && current != nil:
		return p.rules.Closed(*current), false
	}
	return link.Content{}, false
}

// selectRepositories looks again at the Secrets of repositories when what the agent
// needs of them has changed.
func (p *projects) selectRepositories() {
	if !p.unselected {
		return
	}
	p.unselected = false
	for _, o := range p.env.cfg.Store.List(stream.Secret, p.rules.Namespace) {
		p.observe(o.Key)
	}
}

// need notes what follows for the Secrets of repositories, and for AppProjects, from what
// is desired of an entry; open says that the agent gets it, and not only keeps its name.
func (p *projects) need(entry stream.EntryKey, current *object.Object, content link.Content, open bool) {
	news := false
	switch {
	case p.rules.Side != stream.Hub || p.rules.Mode != stream.Managed:
		return
	case entry.Collection == stream.AppProjects:
		news = p.repositoryNeeds.Admit(entry.Name, open)
	case entry.Collection == stream.Applications:
		p.users(entry, current, content)
		if !p.rules.SharesUnscoped {
			return
		}
		var urls []string
		if current != nil && !content.Version.Absent() {
			urls = needs.RepositoriesOf(*current)
		}
		news = p.repositoryNeeds.Use(entry.Namespace+"/"+entry.Name, urls)
	}
	p.unselected = p.unselected || news
}

// applyPauses passes on what Pause was last told, and what cannot be told.
func (p *projects) applyPauses() {
	for _, c := range stream.Collections() {
		unknown := p.globals.Err != nil && (c == stream.AppProjects || c == stream.Repositories)
		p.step(p.rules.Paused(c, unknown || p.env.settings.paused.Load()))
	}
}
