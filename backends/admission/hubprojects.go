package admission

import (
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/stream"
)

// HubProjects are what decides, beside an Application of a hub, whether that may leave it:
// AppProjects, Secrets that scope repositories to them, and global projects.
type HubProjects struct {
	projects map[string]object.Object
	gates    NamedProjects
	globals  Globals
}

// NewHubProjects makes them of the objects in the namespace of the hub's Argo CD, as
// decoded JSON. settings is ConfigMap argocd-cm; nil when there is none.
func NewHubProjects(namespace string, projects, secrets []map[string]any, settings map[string]any) HubProjects {
	p := HubProjects{projects: map[string]object.Object{}, gates: NewNamedProjects()}
	named := func(kind stream.Kind, fields map[string]any) object.Object {
		metadata, _ := fields["metadata"].(map[string]any)
		return object.Object{Key: stream.ResourceKey{Kind: kind, Namespace: namespace,
			Name: object.StringAt(metadata, "name")}, Fields: fields}
	}
	for _, fields := range projects {
		o := named(stream.AppProject, fields)
		p.projects[o.Key.Name] = o
	}
	for _, fields := range secrets {
		o := named(stream.Secret, fields)
		p.gates.Scope(o.Key, &o)
	}
	if settings != nil {
		p.globals.Projects, p.globals.Err = GlobalsOf(named(stream.ConfigMap, settings).Child("data"))
	}
	return p
}

// Admission is what the AppProject of that name admits.
func (p HubProjects) Admission(name string) Admission {
	var project *object.Object
	if o, exists := p.projects[name]; exists {
		merged := Virtual(o, p.globals.Of(o, func(name string) *object.Object {
			if global, exists := p.projects[name]; exists {
				return &global
			}
			return nil
		}))
		project = &merged
	}
	a := Of(name, project, p.gates.Repositories(name))
	if p.globals.Err != nil {
		a.Unknown = p.globals.Err.Error()
	}
	return a
}
