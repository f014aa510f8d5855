package access

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Grant is what an agent's service account needs in one namespace, or, when that is
// empty, in the whole Kubernetes cluster.
type Grant struct {
	Namespace string
	Rules     []rbacv1.PolicyRule
}

// ErrWildcard is wrapped by the error of Grants when a rule names all groups.
var ErrWildcard = errors.New("all groups cannot be granted without what is switched off")

// catalog is every resource of the groups in which something has a switch. RBAC
// cannot take one resource out of "*", so a "*" of these groups is written out. What
// a later Kubernetes adds to them is named here first.
var catalog = map[string][]string{
	"": {
		"bindings", "componentstatuses", "configmaps", "endpoints", "events", "limitranges", "namespaces",
		"namespaces/finalize", "namespaces/status", "nodes", "nodes/proxy", "nodes/status", "persistentvolumeclaims",
		"persistentvolumeclaims/status", "persistentvolumes", "persistentvolumes/status", "pods", "pods/attach",
		"pods/binding", "pods/ephemeralcontainers", "pods/eviction", "pods/exec", "pods/log", "pods/portforward",
		"pods/proxy", "pods/resize", "pods/status", "podtemplates", "replicationcontrollers", "replicationcontrollers/scale",
		"replicationcontrollers/status", "resourcequotas", "resourcequotas/status", "secrets", "serviceaccounts",
		"serviceaccounts/token", "services", "services/proxy", "services/status",
	},
	"authentication.k8s.io": {"selfsubjectreviews", "tokenreviews"},
	"certificates.k8s.io": {
		"certificatesigningrequests", "certificatesigningrequests/approval", "certificatesigningrequests/status",
		"clustertrustbundles", "podcertificaterequests", "podcertificaterequests/status",
	},
	"metrics.k8s.io": {"nodes", "pods"},
}

// podOwners are the kinds by which a pod belongs to what an Application is made of.
var podOwners = slices.Concat(
	kindsOf("", get, "replicationcontrollers"),
	kindsOf("apps", get, "daemonsets", "deployments", "replicasets", "statefulsets"),
	kindsOf("argoproj.io", get, "rollouts"),
	kindsOf("batch", get, "cronjobs", "jobs"),
)

// serviceAccountPrefix begins the user name of a service account.
const serviceAccountPrefix = "system:serviceaccount:"

// Grants returns what the agent's service account needs for the calls that the
// Config lets through, and no more than RBAC can help, sorted by namespace. It is
// empty when live access is off. A rule with group "*" would also grant what is
// switched off: that is an error that wraps ErrWildcard unless allGroups is true; the
// agent itself goes on refusing it. A "*" of resources in a group that is not
// Kubernetes' own includes its subresources, whatever they are.
func (c Config) Grants(allGroups bool) ([]Grant, error) {
	if !c.Enabled {
		return nil, nil
	}
	p, err := New(Spoke, c)
	if err != nil {
		return nil, err
	}
	g := granter{policy: p, byNamespace: map[string]map[permission][]string{}}
	g.add("", permission{urls: true}, "get")
	for _, rule := range p.config.Rules {
		if slices.Contains(rule.Groups, "*") && !allGroups {
			return nil, fmt.Errorf("rule %q: %w: name its groups", rule.Name, ErrWildcard)
		}
		g.rule(rule)
	}
	for _, user := range c.Impersonate {
		g.impersonate(user)
	}
	return g.grants(), nil
}

// permission is one resource, of one name or any.
type permission struct {
	group, resource string
	name            string
	urls            bool // discovery, and no resource
}

// granter collects verbs.
type granter struct {
	policy      *Policy
	byNamespace map[string]map[permission][]string
}

func (g granter) add(namespace string, p permission, verbs ...string) {
	if len(verbs) == 0 {
		return
	}
	if g.byNamespace[namespace] == nil {
		g.byNamespace[namespace] = map[permission][]string{}
	}
	all := slices.Concat(g.byNamespace[namespace][p], verbs)
	slices.Sort(all)
	g.byNamespace[namespace][p] = slices.Compact(all)
}

// rule adds what a rule covers and the switches let through.
func (g granter) rule(rule Rule) {
	namespaces, names := rule.Namespaces, rule.Names
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	if len(names) == 0 {
		names = []string{""}
	}
	for _, k := range rule.kinds() {
		allowed := slices.DeleteFunc(slices.Clone(k.verbs), func(verb string) bool {
			return (len(rule.Verbs) > 0 && !slices.Contains(rule.Verbs, verb)) || !g.switchedOn(k, verb)
		})
		if len(allowed) == 0 {
			continue
		}
		for _, namespace := range namespaces {
			for _, name := range names {
				g.add(namespace, permission{group: k.group, resource: k.resource, name: name}, allowed...)
				if resource, _, _ := strings.Cut(k.resource, "/"); g.policy.config.TrackedOnly && resource != "*" {
					g.add(namespace, permission{group: k.group, resource: resource, name: name}, get...)
				}
			}
		}
	}
	if g.policy.config.TrackedOnly {
		for _, namespace := range namespaces {
			for _, k := range podOwners {
				g.add(namespace, permission{group: k.group, resource: k.resource}, k.verbs...)
			}
		}
	}
}

// switchedOn reports whether the switches let a verb of a kind through.
func (g granter) switchedOn(k kind, verb string) bool {
	r := Request{Verb: verb, Group: k.group}
	r.Resource, r.Subresource, _ = strings.Cut(k.resource, "/")
	return !slices.ContainsFunc(g.policy.uses(r), func(u use) bool { return !u.on })
}

// kinds returns what the rule names, with all verbs, wildcards written out where
// that is known to matter.
func (r Rule) kinds() []kind {
	if len(r.Resources) == 0 {
		return commonKinds
	}
	var out []kind
	for _, group := range r.Groups {
		for _, resource := range r.Resources {
			known, ok := catalog[group]
			if !ok || !strings.HasPrefix(resource, "*") {
				out = append(out, kind{group, resource, verbs})
				continue
			}
			for _, one := range known {
				_, subresource, _ := strings.Cut(one, "/")
				if resource == "*" || (subresource != "" && resource == "*/"+subresource) {
					out = append(out, kind{group, one, verbs})
				}
			}
		}
	}
	return out
}

// impersonate lets the agent be a user.
func (g granter) impersonate(user string) {
	if account, found := strings.CutPrefix(user, serviceAccountPrefix); found {
		if namespace, name, found := strings.Cut(account, ":"); found {
			g.add(namespace, permission{resource: "serviceaccounts", name: name}, "impersonate")
			return
		}
	}
	g.add("", permission{resource: "users", name: user}, "impersonate")
}

// discoveryURLs are the paths that are no objects which an agent asks for.
var discoveryURLs = []string{"/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi/v2", "/openapi/v3",
	"/openapi/v3/*", "/readyz", "/version"}

// grants returns what was collected, in as few rules as are easy to read.
func (g granter) grants() []Grant {
	out := make([]Grant, 0, len(g.byNamespace))
	for _, namespace := range slices.Sorted(maps.Keys(g.byNamespace)) {
		out = append(out, Grant{Namespace: namespace, Rules: policyRules(g.byNamespace[namespace])})
	}
	return out
}

func policyRules(permissions map[permission][]string) []rbacv1.PolicyRule {
	type key struct{ group, verbs, names string }
	// The names of each resource with the same verbs first, then the resources.
	names := map[groupResource]map[string][]string{}
	for p, verbs := range permissions {
		if p.urls {
			continue
		}
		of := groupResource{p.group, p.resource}
		if names[of] == nil {
			names[of] = map[string][]string{}
		}
		joined := strings.Join(verbs, ",")
		names[of][joined] = append(names[of][joined], p.name)
	}
	merged := map[key]*rbacv1.PolicyRule{}
	for of, byVerbs := range names {
		for joined, list := range byVerbs {
			slices.Sort(list)
			if list[0] == "" {
				list = nil // any name
			}
			k := key{of.group, joined, strings.Join(list, "\x00")}
			if merged[k] == nil {
				merged[k] = &rbacv1.PolicyRule{APIGroups: []string{of.group}, Verbs: inOrder(strings.Split(joined, ",")),
					ResourceNames: list}
			}
			merged[k].Resources = append(merged[k].Resources, of.resource)
		}
	}
	out := make([]rbacv1.PolicyRule, 0, len(merged)+1)
	for _, rule := range merged {
		slices.Sort(rule.Resources)
		out = append(out, *rule)
	}
	slices.SortFunc(out, func(a, b rbacv1.PolicyRule) int {
		return cmp.Or(slices.Compare(a.APIGroups, b.APIGroups), slices.Compare(a.Resources, b.Resources),
			slices.Compare(a.ResourceNames, b.ResourceNames), slices.Compare(a.Verbs, b.Verbs))
	})
	if verbs, found := permissions[permission{urls: true}]; found {
		out = append(out, rbacv1.PolicyRule{NonResourceURLs: discoveryURLs, Verbs: verbs})
	}
	return out
}

// inOrder sorts verbs as people write them.
func inOrder(list []string) []string {
	slices.SortFunc(list, func(a, b string) int { return slices.Index(verbs, a) - slices.Index(verbs, b) })
	return list
}
