package mirror

import (
	"fmt"
	"strings"

	"github.com/argomesh/argomesh/stream"
)

// Review says what the policy of these rules, of a managed agent's spoke, refuses of an
// object that the hub has put there, as decoded JSON: what an AppProject does not keep,
// and why nothing is done for an Application any more. It is empty for nothing, and for
// what is not the agent's copy. projects finds an AppProject of the spoke by its name; it
// returns nil for none.
func (r Rules) Review(fields map[string]any, projects func(name string) map[string]any) string {
	kind, _ := fields["kind"].(string)
	o := object{key: stream.ResourceKey{Kind: stream.Kind(kind)}, fields: fields}
	rec, is := recordOf(o)
	if !is || r.Mode != stream.Managed || rec.Agent != "" && rec.Agent != r.Agent.String() {
		return ""
	}
	switch o.key.Kind {
	case stream.AppProject:
		name := stringAt(o.child("metadata"), "name")
		if _, missing := r.Policy.Bounded(name, o.child("spec")); len(missing) > 0 {
			return fmt.Sprintf("is left without %s: %s", strings.Join(missing, ", "), r.Policy.admits(name, o.child("spec")).Message)
		}
	case stream.Application:
		r.HubUID = o.annotation(principalUIDKey)
		r.projects = func(name string) *object {
			if project := projects(name); project != nil {
				return &object{key: stream.ResourceKey{Kind: stream.AppProject, Namespace: r.Namespace, Name: name}, fields: project}
			}
			return nil
		}
		if refusal := r.admitted(o); refusal != nil {
			return "stays as it is, and its next change or sync is refused: " + refusal.Message
		}
	}
	return ""
}
