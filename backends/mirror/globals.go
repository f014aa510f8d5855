package mirror

import (
	"bytes"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/stream"
)

// Global projects of Argo CD restrain, and open, all projects with certain labels. Its
// settings name them, and each of its controllers merges them into a project whenever it
// asks one (GetAppVirtualProject). The other side has other settings, so what is sent
// of a project has them in it.

// settingsName is the ConfigMap with the settings of Argo CD, of which one key is read.
const (
	settingsName = "argocd-cm"
	globalsKey   = "globalProjects"
)

// SettingsConfigMap names the ConfigMap that the source of AppProjects reads, beside
// what is mirrored. It is never written, and nothing of it travels but what follows for
// projects.
func SettingsConfigMap() string { return settingsName }

// globalProject is one entry of the settings.
type globalProject struct {
	name string
	// selects tells by its labels whether a project has this one merged into it. Nil for a
	// selector that is none.
	selects labels.Selector
}

// globals are the entries, in order. The zero value has none.
type globals struct {
	// from is the version of the ConfigMap that they were read of; empty when there is
	// none.
	from     string
	projects []globalProject
	// err says why they cannot be told. What is sent then might lack a restraint that the
	// other side has, so no AppProject, nor what follows from one, moves.
	err error
}

// globalsOf reads the settings.
func globalsOf(data map[string]any) ([]globalProject, error) {
	var entries []struct {
		ProjectName   string               `json:"projectName"`
		LabelSelector metav1.LabelSelector `json:"labelSelector"`
	}
	if err := yaml.Unmarshal([]byte(stringAt(data, globalsKey)), &entries); err != nil {
		return nil, fmt.Errorf("%s of ConfigMap %s cannot be read: %w", globalsKey, settingsName, err)
	}
	out := make([]globalProject, 0, len(entries))
	for _, entry := range entries {
		selects, err := metav1.LabelSelectorAsSelector(&entry.LabelSelector)
		if err != nil {
			selects = nil
		}
		out = append(out, globalProject{entry.ProjectName, selects})
	}
	return out, nil
}

// names reports whether a project is a global one.
func (g globals) names(project string) bool {
	return slices.ContainsFunc(g.projects, func(p globalProject) bool { return p.name == project })
}

// of returns the global projects of a project, which read finds by their names. As with
// Argo CD the first entry that leads nowhere, by its selector or its name, ends the list.
func (g globals) of(project object, read func(name string) *object) []object {
	if len(g.projects) == 0 {
		return nil
	}
	set := labels.Set{}
	for key, value := range project.child("metadata", "labels") {
		set[key], _ = value.(string)
	}
	var out []object
	for _, entry := range g.projects {
		switch {
		case entry.name == project.key.Name:
			continue
		case entry.selects == nil:
			return out
		case !entry.selects.Matches(set):
			continue
		}
		global := read(entry.name)
		if global == nil {
			return out
		}
		out = append(out, *global)
	}
	return out
}

// globalFields are what a global project adds to (Argo CD 3.5, mergeVirtualProject; before
// 3.5 without the service accounts).
var globalFields = []string{
	"clusterResourceWhitelist", "clusterResourceBlacklist", "namespaceResourceWhitelist", "namespaceResourceBlacklist",
	"syncWindows", "sourceRepos", "destinations", "destinationServiceAccounts",
}

// virtual is a project with its global projects merged into it.
func virtual(project object, globals []object) object {
	if len(globals) == 0 {
		return project
	}
	project = project.clone()
	spec := project.ensure("spec")
	for _, global := range globals {
		for _, name := range globalFields {
			added, _ := global.child("spec")[name].([]any)
			list, _ := spec[name].([]any)
			for _, value := range added {
				// What is there once need not be there twice, and Argo CD takes no project in
				// which a repository is.
				if !slices.ContainsFunc(list, func(v any) bool { return bytes.Equal(encode(v), encode(value)) }) {
					list = append(list, clone(value))
				}
			}
			if len(list) > 0 {
				spec[name] = list
			}
		}
	}
	return project
}

// readGlobals reads the settings again if they have changed, and reports whether they
// had. They are the source's: a sink asks nobody.
func (l *loop) readGlobals() (changed bool) {
	if !l.rules.sources(stream.AppProjects) {
		return false
	}
	next := globals{}
	settings := l.current(stream.ResourceKey{Kind: stream.ConfigMap, Namespace: l.rules.Namespace, Name: settingsName})
	if settings != nil {
		next.from = settings.uid() + "/" + settings.meta("resourceVersion")
	}
	if next.from == l.globals.from {
		return false
	}
	if settings != nil {
		next.projects, next.err = globalsOf(settings.child("data"))
	}
	switch {
	case next.err != nil:
		l.m.cfg.Log.Warn().Err(next.err).Msg("cannot tell the global projects, AppProjects and Secrets of repositories are left as they are until it can be read")
	case l.globals.err != nil:
		l.m.cfg.Log.Info().Msg("global projects can be read again")
	}
	l.globals = next
	return true
}

// lookAtGlobals notes that all projects are to be looked at again when what is merged
// into them has changed.
func (l *loop) lookAtGlobals(key stream.ResourceKey) {
	switch {
	case key.Kind == stream.ConfigMap && key.Name == settingsName && key.Namespace == l.rules.Namespace:
		l.unmerged = l.readGlobals() || l.unmerged
	case key.Kind == stream.AppProject && l.globals.names(key.Name):
		l.unmerged = true
	}
}

// mergeGlobals looks at all projects again if that was noted.
func (l *loop) mergeGlobals() {
	if !l.unmerged {
		return
	}
	l.unmerged = false
	for _, o := range l.m.cfg.Store.List(stream.AppProject, l.rules.Namespace) {
		l.observe(o.Key)
	}
	l.hold() // what may leave hangs on whether they can be told
}

// virtualProject is a project of this side as its Argo CD asks it.
func (l *loop) virtualProject(project object) object {
	return virtual(project, l.globals.of(project, func(name string) *object {
		return l.current(stream.ResourceKey{Kind: stream.AppProject, Namespace: l.rules.Namespace, Name: name})
	}))
}

// untold is how people learn, as of a refusal, that the global projects cannot be told.
func (l *loop) untold() (entry stream.EntryKey, refusal stream.Refusal, is bool) {
	if l.globals.err == nil {
		return entry, refusal, false
	}
	return stream.EntryKey{Collection: stream.Trust, Name: settingsName},
		*invalid(l.globals.err.Error() + "; AppProjects and Secrets of repositories stay as they are on the spoke"), true
}
