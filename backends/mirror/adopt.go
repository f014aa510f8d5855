package mirror

import (
	"fmt"
	"slices"
	"strings"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

// An object that is there where a copy is to be, and that no agent wrote, is its
// owner's. It becomes a copy, is adopted, only if the owner of its side allows that: by
// name (Policy.Adopt on a spoke, Rules.Adopt on the hub), or at the object itself. What
// was found is kept before, and given back when the copy is released: see found.

// adoptionPolicyKey says at an object whether it may be adopted: always or never, and
// never wins. It does not travel, since it is the word of the owner of the place.
const (
	adoptionPolicyKey = "argocd.argoproj.io/adoption-policy"
	adoptAlways       = "always"
	adoptNever        = "never"
)

// adoption says why an object that is no copy may not be adopted; nil when it may.
func (r Rules) adoption(o object) *stream.Refusal {
	if refusal := r.givenAway(o); refusal != nil {
		return refusal
	}
	name := r.adoptableName(o)
	refuse := func(format string, args ...any) *stream.Refusal {
		return &stream.Refusal{
			Kind:    stream.RefusalNotOwned,
			Message: fmt.Sprintf("the %s of that name on the %s is its owner's: ", o.key.Kind, r.Side) + fmt.Sprintf(format, args...),
		}
	}
	switch said := o.annotation(adoptionPolicyKey); {
	case said == adoptNever:
		return refuse("its annotation %s is %s", adoptionPolicyKey, adoptNever)
	case said != adoptAlways && !anyGlob(r.adopted(), name):
		where := "policy.adopt of the spoke"
		if r.Side == stream.Hub {
			where = "spec.adopt of the Agent"
		}
		return refuse("rename or remove one of the two, or allow its adoption: %s does not name %s", where, name)
	}
	if size := len(encode(foundOf(o))); size > maxFound {
		return refuse("it is too large to be adopted, with %d bytes of which %d can be kept", size, maxFound)
	}
	return nil
}

// adopted are the names of what may be adopted on this side. A nil Policy names none.
func (r Rules) adopted() []string {
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
func (r Rules) adoptableName(o object) string {
	kind, name := map[stream.Kind]string{stream.Application: kindApplication, stream.AppProject: kindProject}[o.key.Kind], o.key.Name
	switch o.key.Kind {
	case stream.Application:
		if namespace, _ := r.onWire(o.key.Namespace); namespace != "" {
			name = o.key.Namespace + "/" + name
		}
	case stream.Secret:
		kind = o.label(secretTypeKey)
	}
	return kind + "/" + name
}

// validateAdopt returns an error that wraps identity.ErrInvalid for a pattern that names
// nothing that could be adopted.
func validateAdopt(pattern string) error {
	kinds := slices.Concat([]string{kindApplication, kindProject}, credentialTypes)
	kind, name, _ := strings.Cut(pattern, "/")
	if !parses(pattern) || name == "" || !slices.ContainsFunc(kinds, func(k string) bool { return globMatches(kind, k) }) {
		return fmt.Errorf("%q is not kind/name, both globs, with a kind of %s: %w", pattern, strings.Join(kinds, ", "), identity.ErrInvalid)
	}
	return nil
}

// adopt is the writes that make of an object that may be adopted the copy next: what was
// found is kept before.
func adopt(current, next object) []Write {
	delete(next.child("metadata", "annotations"), returnedKey)
	if status := next.child("status"); status != nil {
		setConditions(status, slices.DeleteFunc(conditions(status), isReturnedCondition))
	}
	return []Write{
		{Op: Keep, Raw: encode(foundOf(current))},
		{Op: Update, Raw: encode(next.fields)},
	}
}

// takes refuses the project default where there is none, unless it may be adopted: each
// argocd-server makes one that permits all, and whose it then is nobody could tell. What
// is the hub's already stays.
func (r Rules) takes(key stream.ResourceKey, current *object) *stream.Refusal {
	if r.Side != stream.Spoke || key.Kind != stream.AppProject || key.Name != defaultProject || current != nil ||
		anyGlob(r.adopted(), kindProject+"/"+defaultProject) {
		return nil
	}
	return denied("adopt", "project %q", defaultProject)
}
