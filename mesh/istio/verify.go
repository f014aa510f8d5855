package istio

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kinds are those that [Render] and [RenderSpoke] make, with the resource under which
// the API serves each, by name of the kind.
func Kinds() map[string]schema.GroupVersionResource {
	security := schema.GroupVersion{Group: "security.istio.io", Version: "v1"}
	network := schema.GroupVersion{Group: "networking.istio.io", Version: "v1"}
	return map[string]schema.GroupVersionResource{
		"AuthorizationPolicy": security.WithResource("authorizationpolicies"),
		"PeerAuthentication":  security.WithResource("peerauthentications"),
		"DestinationRule":     network.WithResource("destinationrules"),
		"Gateway":             network.WithResource("gateways"),
		"ServiceEntry":        network.WithResource("serviceentries"),
		"Sidecar":             network.WithResource("sidecars"),
		"VirtualService":      network.WithResource("virtualservices"),
	}
}

// consequence says what it means that an object of a kind is not as it should be.
var consequence = map[string]string{
	"AuthorizationPolicy": "others than those registered may get through, or those registered may not",
	"PeerAuthentication":  "the ports take what the mesh's default allows, which may be plaintext",
	"DestinationRule":     "clients do not ask for the principal's SPIFFE ID, and quiet connections may be cut",
	"Gateway":             "agents do not reach the hub, or not by the TLS that is meant",
	"ServiceEntry":        "the agent may not reach its hub",
	"Sidecar":             "connections may reach the principal by another way than its proxy, or not at all",
	"VirtualService":      "agents reach the gateway and get no further, or more than our services is let through",
}

// Verify compares what a cluster has with what was rendered and returns one sentence for
// each difference, in the order of the objects; none when all is as it should be. Have
// holds at least all objects of [Kinds] in the namespaces of want. Objects that are not
// ours are differences only where they change what ours mean.
func Verify(want []Object, have []*unstructured.Unstructured) ([]string, error) {
	there := make(map[string]*unstructured.Unstructured, len(have))
	for _, object := range have {
		there[nameOfObject(object)] = object
	}
	var out []string
	wanted := map[string]bool{}
	for _, typed := range want {
		object, err := Unstructured(typed)
		if err != nil {
			return nil, err
		}
		name := nameOfObject(object)
		wanted[name] = true
		found := there[name]
		if found == nil {
			out = append(out, fmt.Sprintf("%s is missing: %s.", name, consequence[object.GetKind()]))
			continue
		}
		out = append(out, compare(name, found, object)...)
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		object := there[name]
		switch {
		case wanted[name]:
		case ours(object):
			out = append(out, fmt.Sprintf("%s is left over: nothing of today's configuration asks for it, so delete it.", name))
		default:
			out = append(out, interferes(name, object, want)...)
		}
	}
	return out, nil
}

func nameOfObject(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}

func ours(o *unstructured.Unstructured) bool {
	l := o.GetLabels()
	return l[partOfLabel] == "argomesh" && l[managedByLabel] == "agentctl"
}

// compare returns how have differs from want. For policies it says who may connect.
func compare(name string, have, want *unstructured.Unstructured) []string {
	var out []string
	a, b := leaves(have), leaves(want)
	for _, path := range slices.Sorted(maps.Keys(union(a, b))) {
		was, is := a[path], b[path]
		if was == is {
			continue
		}
		if strings.HasSuffix(path, ".principals") || strings.HasSuffix(path, ".notPrincipals") {
			out = append(out, people(name, was, is)...)
			continue
		}
		out = append(out, fmt.Sprintf("%s has %s %s, and should have %s: %s.", name, path, orNothing(was), orNothing(is), consequence[want.GetKind()]))
	}
	return out
}

// people returns a sentence for each principal of one list and not of the other.
func people(name, have, want string) []string {
	var a, b []string
	// Both come from JSON; what cannot be read is no list, and then empty.
	_ = json.Unmarshal([]byte(have), &a)
	_ = json.Unmarshal([]byte(want), &b)
	var out []string
	for _, who := range a {
		if slices.Contains(b, who) {
			continue
		}
		why := "nothing of today's configuration and Agents says so"
		if strings.HasPrefix(who, "spiffe://") {
			why = "with its scheme it matches nobody"
		}
		out = append(out, fmt.Sprintf("%s admits %s, and should not: %s.", name, who, why))
	}
	for _, who := range b {
		if !slices.Contains(a, who) {
			out = append(out, fmt.Sprintf("%s does not admit %s, and should.", name, who))
		}
	}
	return out
}

// interferes returns a sentence for an object of others that also holds for pods that a
// policy of ours is about.
func interferes(name string, object *unstructured.Unstructured, want []Object) []string {
	action, _, _ := unstructured.NestedString(object.Object, "spec", "action") // unset is ALLOW
	allows := object.GetKind() == "AuthorizationPolicy" && cmp.Or(action, "ALLOW") == "ALLOW"
	if !allows && object.GetKind() != "PeerAuthentication" {
		return nil
	}
	theirs, selects, _ := unstructured.NestedStringMap(object.Object, "spec", "selector", "matchLabels")
	if !selects && object.GetKind() == "PeerAuthentication" {
		return nil // one with a selector, such as ours, goes before it
	}
	for _, typed := range want {
		mine, err := Unstructured(typed)
		if err != nil || mine.GetKind() != object.GetKind() || mine.GetNamespace() != object.GetNamespace() {
			continue
		}
		if action, _, _ := unstructured.NestedString(mine.Object, "spec", "action"); action == "DENY" {
			continue // what others allow does not weaken it
		}
		pods, _, _ := unstructured.NestedStringMap(mine.Object, "spec", "selector", "matchLabels")
		if !labels.SelectorFromSet(theirs).Matches(labels.Set(pods)) {
			continue
		}
		if allows {
			return []string{fmt.Sprintf("%s is not ours and holds for the same pods: whom it allows gets through beside those that are registered.", name)}
		}
		return []string{fmt.Sprintf("%s is not ours and holds for the same pods: Istio takes the older of two, so ours may count for nothing.", name)}
	}
	return nil
}

// leaves returns the fields of an object's spec as JSON, by their paths. Lists of
// objects are walked, lists of words are one field, sorted since their order means
// nothing.
func leaves(o *unstructured.Unstructured) map[string]string {
	out := map[string]string{}
	walk(out, "spec", o.Object["spec"])
	return out
}

func walk(out map[string]string, path string, node any) {
	switch node := node.(type) {
	case map[string]any:
		for key, child := range node {
			walk(out, path+"."+key, child)
		}
		return
	case []any:
		words := make([]string, 0, len(node))
		for i, item := range node {
			word, ok := item.(string)
			if !ok {
				walk(out, fmt.Sprintf("%s[%d]", path, i), item)
				continue
			}
			words = append(words, word)
		}
		if len(words) == 0 {
			return
		}
		slices.Sort(words)
		out[path] = text(words)
		return
	}
	out[path] = text(node)
}

func text(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value) // unreachable: it came from JSON
	}
	return string(raw)
}

func union(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

func orNothing(s string) string { return cmp.Or(s, "nothing") }
