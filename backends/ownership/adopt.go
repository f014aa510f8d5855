package ownership

import (
	"fmt"
	"slices"

	"github.com/argomesh/argomesh/backends/glob"
	"github.com/argomesh/argomesh/backends/object"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/stream"
)

// An object that is there where a copy is to be, and that no agent wrote, is its
// owner's. It becomes a copy, is adopted, only if the owner of its side allows that: by
// name (Policy.Adopt on a spoke, Rules.Adopt on the hub), or at the object itself. What
// was found is kept before, and given back when the copy is released: see found.

// The values of object.AdoptionPolicyKey; never wins.
const (
	adoptAlways = "always"
	adoptNever  = "never"
)

// adoption says why an object that is no copy may not be adopted; nil when it may.
func adoption(r Rules, o object.Object) *stream.Refusal {
	if refusal := r.RefuseReleased(o); refusal != nil {
		return refusal
	}
	name := adoptableName(r, o)
	refuse := func(format string, args ...any) *stream.Refusal {
		return &stream.Refusal{
			Kind: stream.RefusalNotOwned,
			Message: fmt.Sprintf("the %s of that name on the %s is its owner's: ", o.Key.Kind, r.Side) +
				fmt.Sprintf(format, args...),
		}
	}
	switch said := o.Annotation(object.AdoptionPolicyKey); {
	case said == adoptNever:
		return refuse("its annotation %s is %s", object.AdoptionPolicyKey, adoptNever)
	case said != adoptAlways && !glob.Any(adoptedNames(r), name):
		where := "policy.adopt of the spoke"
		if r.Side == stream.Hub {
			where = "spec.adopt of the Agent"
		}
		return refuse("rename or remove one of the two, or allow its adoption: %s does not name %s", where, name)
	}
	if size := len(object.Encode(object.FoundOf(o))); size > object.MaxFound {
		return refuse("it is too large to be adopted, with %d bytes of which %d can be kept", size, object.MaxFound)
	}
	return nil
}

// adoptedNames are the names of what may be adopted on this side. A nil Policy names none.
func adoptedNames(r Rules) []string {
	switch {
	case r.Side == stream.Hub:
		return r.Adopt
	case r.Policy == nil:
		return nil
	}
	return r.Policy.Adopt
}

// adoptableName is what the owner calls an object: its kind, as in Policy.Kinds, and its
// name, for an Application outside of Argo CD's namespace with its namespace in front.
func adoptableName(r Rules, o object.Object) string {
	kind, name := map[stream.Kind]string{stream.Application: policy.KindApplication,
		stream.AppProject: policy.KindProject}[o.Key.Kind], o.Key.Name
	switch o.Key.Kind {
	case stream.Application:
		if namespace, _ := r.OnWire(o.Key.Namespace); namespace != "" {
			name = o.Key.Namespace + "/" + name
		}
	case stream.Secret:
		kind = o.Label(object.SecretTypeKey)
	}
	return kind + "/" + name
}

// adopt is the writes that make of an object that may be adopted the copy next: what was
// found is kept before.
func adopt(current, next object.Object) []Write {
	delete(next.Child("metadata", "annotations"), object.ReturnedKey)
	if status := next.Child("status"); status != nil {
		object.SetConditions(status, slices.DeleteFunc(object.Conditions(status), object.IsReturnedCondition))
	}
	return []Write{
		{Op: SaveFound, Raw: object.Encode(object.FoundOf(current))},
		{Op: Update, Raw: object.Encode(next.Fields)},
	}
}

// refuseDefault refuses the project default where there is none, unless it may be adopted: each
// argocd-server makes one that permits all, and whose it then is no one could tell. What
// is the hub's already stays.
func refuseDefault(r Rules, key stream.ResourceKey, current *object.Object) *stream.Refusal {
	if r.Side != stream.Spoke || key.Kind != stream.AppProject || key.Name != object.DefaultProjectName ||
		current != nil ||
		glob.Any(adoptedNames(r), policy.KindProject+"/"+object.DefaultProjectName) {
		return nil
	}
	return policy.Denied("adopt", "project %q", object.DefaultProjectName)
}
