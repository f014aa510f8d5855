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

	"github.com/argomesh/argomesh/mesh/objects"
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

// Scopes are where [Render] puts objects, of whatever exposure and policy, and so where
// what is left of another configuration may be: the principal's namespace and, if cfg
// has a gateway, that of the gateway.
func Scopes(cfg Config) []objects.Scope {
	var out []objects.Scope
	add := func(namespace string, kinds ...string) {
		for _, kind := range kinds {
			out = append(out, objects.Scope{Kind: kind, Resource: Kinds()[kind], Namespace: namespace})
		}
	}
	add(cfg.Namespace, "AuthorizationPolicy", "PeerAuthentication", "DestinationRule", "Sidecar", "VirtualService")
	switch cfg.Gateway.Namespace {
	case "":
	case cfg.Namespace:
		add(cfg.Namespace, "Gateway")
	default:
		add(cfg.Gateway.Namespace, "AuthorizationPolicy", "Gateway")
	}
	return out
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
// holds at least all objects of [Scopes]; manager is the field manager by which the hub
// applies, see [objects.Manager]. Objects that are not ours are differences only where
// they change what ours mean.
func Verify(want, have []*unstructured.Unstructured, manager string) []objects.Difference {
	there := make(map[string]*unstructured.Unstructured, len(have))
	for _, object := range have {
		there[objects.Name(object)] = object
	}
	var out []objects.Difference
	add := func(format string, args ...any) {
		out = append(out, objects.Difference{Text: fmt.Sprintf(format, args...)})
	}
	wanted := map[string]bool{}
	for _, object := range want {
		name := objects.Name(object)
		wanted[name] = true
		if found := there[name]; found != nil {
			out = append(out, compare(name, found, object)...)
		} else {
			add("%s is missing: %s.", name, consequence[object.GetKind()])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		object := there[name]
		switch {
		case wanted[name]:
		case ours(object) || objects.AppliedBy(object, manager):
			add("%s is left over: nothing of today's configuration asks for it, so delete it.", name)
		default:
			if text := interferes(name, object, want); text != "" {
				add("%s", text)
			}
		}
	}
	return out
}

func ours(o *unstructured.Unstructured) bool {
	l := o.GetLabels()
	return l[partOfLabel] == "argomesh" && l[managedByLabel] == "agentctl"
}

// compare returns how have differs from want. For policies it says who may connect.
func compare(name string, have, want *unstructured.Unstructured) []objects.Difference {
	var out []objects.Difference
	for _, field := range objects.Compare(have, want) {
		if strings.HasSuffix(field.Path, ".principals") || strings.HasSuffix(field.Path, ".notPrincipals") {
			out = append(out, people(name, field.Have, field.Want)...)
			continue
		}
		out = append(out, objects.Difference{Text: fmt.Sprintf("%s has %s %s, and should have %s: %s.",
			name, field.Path, orNothing(field.Have), orNothing(field.Want), consequence[want.GetKind()])})
	}
	return out
}

// people returns a sentence for each principal of one list and not of the other.
func people(name, have, want string) []objects.Difference {
	var a, b []string
	// Both come from JSON; what cannot be read is no list, and then empty.
	_ = json.Unmarshal([]byte(have), &a)
	_ = json.Unmarshal([]byte(want), &b)
	var out []objects.Difference
	add := func(who, format string, args ...any) {
		out = append(out, objects.Difference{Text: fmt.Sprintf(format, args...), About: strings.TrimPrefix(who, "spiffe://")})
	}
	for _, who := range a {
		if slices.Contains(b, who) {
			continue
		}
		why := "nothing of today's configuration and Agents says so"
		if strings.HasPrefix(who, "spiffe://") {
			why = "with its scheme it matches no peer"
		}
		add(who, "%s admits %s, and should not: %s.", name, who, why)
	}
	for _, who := range b {
		if !slices.Contains(a, who) {
			add(who, "%s does not admit %s, and should.", name, who)
		}
	}
	return out
}

// interferes returns a sentence for an object of others that also holds for pods that a
// policy of ours is about, else nothing.
func interferes(name string, object *unstructured.Unstructured, want []*unstructured.Unstructured) string {
	action, _, _ := unstructured.NestedString(object.Object, "spec", "action") // unset is ALLOW
	allows := object.GetKind() == "AuthorizationPolicy" && cmp.Or(action, "ALLOW") == "ALLOW"
	if !allows && object.GetKind() != "PeerAuthentication" {
		return ""
	}
	theirs, selects, _ := unstructured.NestedStringMap(object.Object, "spec", "selector", "matchLabels")
	if !selects && object.GetKind() == "PeerAuthentication" {
		return "" // one with a selector, such as ours, goes before it
	}
	for _, mine := range want {
		if mine.GetKind() != object.GetKind() || mine.GetNamespace() != object.GetNamespace() {
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
			return fmt.Sprintf("%s is not ours and holds for the same pods: whom it allows gets through beside those that are registered.", name)
		}
		return fmt.Sprintf("%s is not ours and holds for the same pods: Istio takes the older of two, so ours may count for nothing.", name)
	}
	return ""
}

func orNothing(s string) string { return cmp.Or(s, "nothing") }
