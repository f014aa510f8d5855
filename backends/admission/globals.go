package admission

import (
	"bytes"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/backends/object"
)

// SettingsName is the ConfigMap with the settings of Argo CD, of which one key is read.
const (
	SettingsName = "argocd-cm"
	globalsKey   = "globalProjects"
)

// SettingsConfigMap names the ConfigMap that the source of AppProjects reads, beside
// what is mirrored. It is never written, and nothing of it travels but what follows for
// projects.
func SettingsConfigMap() string { return SettingsName }

// GlobalProject is one entry of the settings.
type GlobalProject struct {
	name string
	// selects tells by its labels whether a project has this one merged into it. Nil for a
	// selector that is none.
	selects labels.Selector
}

// Globals are the entries, in order. The zero value has none.
type Globals struct {
	// From is the version of the ConfigMap that they were read of; empty when there is
	// none.
	From     string
	Projects []GlobalProject
	// Err says why they cannot be told. What is sent then might lack a restraint that the
	// other side has, so no AppProject, nor what follows from one, moves.
	Err error
}

// GlobalsOf reads the settings.
func GlobalsOf(data map[string]any) ([]GlobalProject, error) {
	var entries []struct {
		ProjectName   string               `json:"projectName"`
		LabelSelector metav1.LabelSelector `json:"labelSelector"`
	}
	if err := yaml.Unmarshal([]byte(object.StringAt(data, globalsKey)), &entries); err != nil {
		return nil, fmt.Errorf("%s of ConfigMap %s cannot be read: %w", globalsKey, SettingsName, err)
	}
	out := make([]GlobalProject, 0, len(entries))
	for _, entry := range entries {
		selects, err := metav1.LabelSelectorAsSelector(&entry.LabelSelector)
		if err != nil {
			selects = nil
		}
		out = append(out, GlobalProject{entry.ProjectName, selects})
	}
	return out, nil
}

// Names reports whether a project is a global one.
func (g Globals) Names(project string) bool {
	return slices.ContainsFunc(g.Projects, func(p GlobalProject) bool { return p.name == project })
}

// Of returns the global projects of a project, which read finds by their names. As with
// Argo CD the first entry that leads nowhere, by its selector or its name, ends the list.
func (g Globals) Of(project object.Object, read func(name string) *object.Object) []object.Object {
	if len(g.Projects) == 0 {
		return nil
	}
	set := labels.Set{}
	for key, value := range project.Child("metadata", "labels") {
		set[key], _ = value.(string)
	}
	var out []object.Object
	for _, entry := range g.Projects {
		switch {
		case entry.name == project.Key.Name:
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

// Virtual is a project with its global projects merged into it.
func Virtual(project object.Object, globals []object.Object) object.Object {
	if len(globals) == 0 {
		return project
	}
	project = project.Clone()
	spec := project.Ensure("spec")
	for _, global := range globals {
		for _, name := range globalFields {
			list, _ := spec[name].([]any)
			added, _ := global.Child("spec")[name].([]any)
			if list = union(list, added); len(list) > 0 {
				spec[name] = list
			}
		}
	}
	return project
}

// union is list with what of added it lacks. What is there once need not be there twice, and
// Argo CD takes no project in which a repository is.
func union(list, added []any) []any {
	for _, value := range added {
		if !slices.ContainsFunc(list, func(v any) bool { return bytes.Equal(object.Encode(v), object.Encode(value)) }) {
			list = append(list, object.Clone(value))
		}
	}
	return list
}
