package ownership

import (
	"fmt"
	"strings"

	"github.com/argomesh/argomesh/backends/admission"
	"github.com/argomesh/argomesh/backends/copies"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/operations"
	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/stream"
)

// Review says what the policy of these rules, of a managed agent's spoke, refuses of an
// object that the hub has put there, as decoded JSON: what an AppProject does not keep,
// and why nothing is done for an Application any more. It is empty for nothing, and for
// what is not the agent's copy. projects finds an AppProject of the spoke by its name; it
// returns nil for none.
func (r Rules) Review(fields map[string]any, projects func(name string) map[string]any) string {
	kind, _ := fields["kind"].(string)
	o := object.Object{Key: stream.ResourceKey{Kind: stream.Kind(kind)}, Fields: fields}
	rec, is := record.Of(o)
	if !is || r.Mode != stream.Managed || rec.Agent != "" && rec.Agent != r.Agent.String() {
		return ""
	}
	switch o.Key.Kind {
	case stream.AppProject:
		name := object.StringAt(o.Child("metadata"), "name")
		if _, missing := r.Policy.Bounded(name, o.Child("spec")); len(missing) > 0 {
			return fmt.Sprintf("is left without %s: %s", strings.Join(missing, ", "),
				r.Policy.Admits(name, o.Child("spec")).Message)
		}
	case stream.Application:
		r.HubUID = o.Annotation(object.PrincipalUIDKey)
		r.Projects = func(name string) *object.Object {
			if project := projects(name); project != nil {
				return &object.Object{Key: stream.ResourceKey{Kind: stream.AppProject, Namespace: r.Namespace, Name: name},
					Fields: project}
			}
			return nil
		}
		if refusal := admitted(r, o); refusal != nil {
			return "stays as it is, and its next change or sync is refused: " + refusal.Message
		}
	}
	return ""
}

// NeedsAdmission reports whether Applications of this link have to be admitted.
func (r Rules) NeedsAdmission() bool { return r.Side == stream.Hub && r.Mode == stream.Managed }

// Bars says why an AppProject does not admit an Application of this link, with the rule;
// empty when it does.
func (r Rules) Bars(a admission.Admission, app object.Object) string {
	return a.Bars(app, r.Map, r.ClusterProject)
}

// ReviewHub says why the AppProject of an Application of the hub, as decoded JSON, does not
// admit it, so that nothing of it is sent to the managed agent of these rules. It is empty
// for one that is sent, and for what is not the agent's.
func (r Rules) ReviewHub(app map[string]any, by admission.HubProjects) string {
	o := copies.ObjectOfHub(app)
	if !r.NeedsAdmission() || len(r.Keys(o.Key)) == 0 || !r.Sendable(o) || o.Deleting() {
		return ""
	}
	return r.Bars(by.Admission(object.ProjectOf(o.Child("spec"))), o)
}

// NeverSent is the answer of a spoke to an Application that waits for an AppProject, when
// the hub has that and does not send it, so that waiting alone is of no use; the answer as
// it came otherwise.
func (r Rules) NeverSent(refusal stream.Refusal, name string, project *object.Object) stream.Refusal {
	if refusal.Kind != stream.RefusalUnavailable || refusal.Awaits != name || project == nil {
		return refusal
	}
	if _, sent := r.Content(stream.AppProjects, *project, operations.Requests{}); sent {
		return refusal
	}
	why := "it is not for this agent"
	switch {
	case project.Label(object.IgnoreSyncKey) == "true":
		why = "it has label " + object.IgnoreSyncKey
	case !r.Shares(name):
		why = "projects.share_default of the principal is off"
	case r.UIDIn(stream.AppProjects, *project) == "":
		why = "it is a mirror of an agent's AppProject"
	}
	return stream.Refusal{
		Kind:    stream.RefusalDenied,
		Message: fmt.Sprintf("AppProject %q of the hub is not on the spoke, and the hub does not send it: %s", name, why),
	}
}
