package ownership

import (
	"fmt"
	"slices"

	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// HubProject says why an Application of the hub may not name an AppProject of the spoke;
// nil when it may. project is the one of that name; nil when there is none.
func (r Rules) HubProject(name string, project *object.Object) *stream.Refusal {
	switch {
	case r.Side != stream.Spoke || r.Mode != stream.Managed ||
		r.Policy == nil, slices.Contains(r.Policy.Projects, name), !r.Policy.AppProjects():
		return nil
	case r.Policy.Project(name) != nil:
		return r.Policy.Project(name)
	case project == nil:
		key := stream.ResourceKey{Kind: stream.AppProject, Namespace: r.Namespace, Name: name}
		if refuseDefault(r, key, nil) == nil {
			return OnItsWay(name)
		}
	case r.IsCopy(*project) && r.OfThisHub(*project):
		return nil
	case r.IsCopy(*project) && !r.Inherits:
		return r.OthersCopy(*project)
	case r.IsCopy(*project), !record.Has(*project) && adoption(r, *project) == nil:
		return OnItsWay(name)
	}
	switches := ""
	if name == object.DefaultProjectName {
		switches = "; the hub's comes with projects.share_default of the principal and appproject/default in policy.adopt of the spoke"
	}
	return policy.Denied("projects", "project %q by its very name, and the one on the spoke is not the hub's%s", name,
		switches)
}

// OnItsWay is the answer while the hub's AppProject of that name may still come.
func OnItsWay(name string) *stream.Refusal {
	message := fmt.Sprintf("AppProject %q of the hub is not on the spoke yet", name)
	if name == object.DefaultProjectName {
		message += "; the hub sends it with projects.share_default"
	}
	return &stream.Refusal{Kind: stream.RefusalUnavailable, Message: message, Awaits: name}
}

// mayName is HubProject for an Application with that spec.
func mayName(r Rules, spec map[string]any) *stream.Refusal {
	name := object.ProjectOf(spec)
	return r.HubProject(name, projectNamed(r, name))
}

// projectNamed is the AppProject of that name here; nil when there is none.
func projectNamed(r Rules, name string) *object.Object {
	if r.Projects == nil {
		return nil
	}
	return r.Projects(name)
}
