package spire

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/mesh/objects"
)

// Scopes are where [HubObjects] has its objects.
func Scopes() []objects.Scope {
	return []objects.Scope{{Kind: ClusterSPIFFEIDKind, Resource: Resource(ClusterSPIFFEIDKind)}}
}

// Verify compares what a cluster has with what [HubObjects] returned, and returns one
// sentence for each difference; none when all is as it should be. Have holds at least all
// objects of [Scopes]; manager is the field manager by which the hub applies, see
// [objects.Manager]. Registrations of agents, by agentctl identity, are none of its
// business.
func Verify(want, have []*unstructured.Unstructured, manager string) []objects.Difference {
	there := make(map[string]*unstructured.Unstructured, len(have))
	for _, o := range have {
		there[objects.Name(o)] = o
	}
	var out []objects.Difference
	add := func(format string, args ...any) {
		out = append(out, objects.Difference{Text: fmt.Sprintf(format, args...)})
	}
	wanted := map[string]bool{}
	for _, o := range want {
		name := objects.Name(o)
		wanted[name] = true
		pods := podsOf(o)
		found := there[name]
		if found == nil {
			add("%s is missing: %s get no SVID by it.", name, pods)
			continue
		}
		for _, field := range objects.Compare(found, o) {
			add("%s has %s %s, and should have %s: %s get another SVID or other bundles than they need.",
				name, field.Path, cmp.Or(field.Have, "nothing"), cmp.Or(field.Want, "nothing"), pods)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if !wanted[name] && objects.AppliedBy(there[name], manager) {
			add("%s is left over: nothing of today's configuration asks for it, so delete it.", name)
		}
	}
	return out
}

// podsOf says whose SVIDs an object is about.
func podsOf(o *unstructured.Unstructured) string {
	id, _, _ := unstructured.NestedString(o.Object, "spec", "spiffeIDTemplate") // we made it
	return "the pods of " + id
}
