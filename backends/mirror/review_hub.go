package mirror

import "github.com/argomesh/argomesh/stream"

// HubProjects are what decides, beside an Application of a hub, whether that may leave it:
// AppProjects, Secrets that scope repositories to them, and global projects.
type HubProjects struct {
	projects map[string]object
	gates    gates
	globals  globals
}

// NewHubProjects makes them of the objects in the namespace of the hub's Argo CD, as
// decoded JSON. settings is ConfigMap argocd-cm; nil when there is none.
func NewHubProjects(namespace string, projects, secrets []map[string]any, settings map[string]any) HubProjects {
	p := HubProjects{projects: map[string]object{}, gates: newGates()}
	named := func(kind stream.Kind, fields map[string]any) object {
		metadata, _ := fields["metadata"].(map[string]any)
		return object{key: stream.ResourceKey{Kind: kind, Namespace: namespace, Name: stringAt(metadata, "name")}, fields: fields}
	}
	for _, fields := range projects {
		o := named(stream.AppProject, fields)
		p.projects[o.key.Name] = o
	}
	for _, fields := range secrets {
		o := named(stream.Secret, fields)
		p.gates.scope(o.key, &o)
	}
	if settings != nil {
		p.globals.projects, p.globals.err = globalsOf(named(stream.ConfigMap, settings).child("data"))
	}
	return p
}

// admission is what the AppProject of that name admits.
func (p HubProjects) admission(name string) admission {
	var project *object
	if o, exists := p.projects[name]; exists {
		merged := virtual(o, p.globals.of(o, func(name string) *object {
			if global, exists := p.projects[name]; exists {
				return &global
			}
			return nil
		}))
		project = &merged
	}
	a := admissionOf(name, project, p.gates.repositories(name))
	if p.globals.err != nil {
		a.unknown = p.globals.err.Error()
	}
	return a
}

// ReviewHub says why the AppProject of an Application of the hub, as decoded JSON, does not
// admit it, so that nothing of it is sent to the managed agent of these rules. It is empty
// for one that is sent, and for what is not the agent's.
func (r Rules) ReviewHub(app map[string]any, by HubProjects) string {
	o := objectOfHub(app)
	if !r.gated() || len(r.Keys(o.key)) == 0 || !r.sendable(o) || o.deleting() {
		return ""
	}
	return r.bars(by.admission(projectOf(o.child("spec"))), o)
}
