package roles

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/admission"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/cmd/internal/agentconfig"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/stream"
)

// Of returns the roles of the service account of an agent, and their
// bindings.
func Of(account string, cfg Settings, live []access.Grant) []runtime.Object {
	namespace := cfg.Namespace
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: namespace}
	everywhere := OwnClusterRules()
	watched := cfg.Mapping.Watched(namespace)
	if len(watched) == 0 {
		everywhere = append(everywhere, ApplicationRule(), EventRule())
	}
	if cfg.Mapping.CreateNamespaces {
		everywhere = append(everywhere, NamespaceRule())
	}
	out := slices.Concat(
		clusterRole(account, everywhere, subject),
		role(account, namespace, slices.Concat(OwnRules(), mirroredRules(cfg), autonomousRules(cfg)), subject),
	)
	for _, further := range watched[min(1, len(watched)):] {
		out = append(out,
			role(account+"-applications", further, []rbacv1.PolicyRule{ApplicationRule(), EventRule()}, subject)...)
	}
	for _, grant := range live {
		if grant.Namespace == "" {
			out = append(out, clusterRole(account+"-live", grant.Rules, subject)...)
		} else {
			out = append(out, role(account+"-live", grant.Namespace, grant.Rules, subject)...)
		}
	}
	return out
}

// OwnClusterRules are what an agent itself needs outside of its namespace: the
// identity of the Kubernetes cluster, which is the UID of a namespace, and what its API
// server knows of Applications and AppProjects.
func OwnClusterRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{
			APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"},
			ResourceNames: []string{"applications.argoproj.io", "appprojects.argoproj.io"}, Verbs: []string{"list", "watch"},
		},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{metav1.NamespaceSystem},
			Verbs: []string{"get"}},
		{NonResourceURLs: []string{"/version"}, Verbs: []string{"get"}},
	}
}

// ApplicationRule is what an agent needs in each further namespace of Applications.
func ApplicationRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{"argoproj.io"}, Resources: []string{"applications"},
		Verbs: []string{"get", "list", "watch", "create", "update", "delete"},
	}
}

// EventRule is what an agent needs there to tell the hub what Argo CD says of Applications.
func EventRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"list", "watch"}}
}

// NamespaceRule is what an agent needs to make such namespaces.
func NamespaceRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create"}}
}

// OwnRules are what an agent itself needs in its namespace.
func OwnRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{agentconfig.Name},
			Verbs: []string{"get", "create", "patch"}},
		ApplicationRule(),
		EventRule(),
		// an owner's own too
		{APIGroups: []string{"argoproj.io"}, Resources: []string{"appprojects"}, Verbs: []string{"get", "list", "watch"}},
		// has no name yet
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{agentconfig.Name},
			Verbs: []string{"get", "watch", "update"}},
	}
}

// MirroredGrants are what a managed agent needs for the kinds beside Applications. RBAC knows no
// labels, so the right to what is selected by them is that to all of a kind in the namespace;
// the agent reads and writes what is selected alone. Nor can it bind the making of an object to
// a name.
func MirroredGrants() []KindGrant {
	var named []KindGrant
	var projects []string
	made, whole := map[stream.Kind][]string{}, map[stream.Kind][]string{}
	for _, name := range policy.Kinds() {
		only := policy.Policy{Kinds: []string{name}}
		if only.AppProjects() {
			projects = append(projects, name)
		}
		for _, kind := range mirroredKinds() {
			selectors, allowed := only.Selectors(kind)
			names := namesOf(selectors)
			switch {
			case !allowed:
			case len(names) > 0:
				made[kind] = append(made[kind], name)
				named = append(named, grant([]string{name}, kind, names, "get", "list", "watch", "update"))
			default:
				whole[kind] = append(whole[kind], name)
			}
		}
	}
	grants := slices.Concat(named, []KindGrant{grant(projects, stream.AppProject, nil, "create", "update", "delete")})
	for _, kind := range mirroredKinds() {
		if names := made[kind]; len(names) > 0 {
			grants = append(grants, grant(names, kind, nil, "create"))
		}
		if names := whole[kind]; len(names) > 0 {
			grants = append(grants, grant(names, kind, nil, "get", "list", "watch", "create", "update", "delete"))
		}
	}
	return grants
}

// mirroredKinds are the kinds of which both sides have objects of the same names.
func mirroredKinds() []stream.Kind {
	var kinds []stream.Kind
	for _, c := range stream.Collections() {
		if c.ByName() {
			kinds = append(kinds, c.Kind())
		}
	}
	return kinds
}

// namesOf are the names that selectors have; none where they go by labels.
func namesOf(selectors []backends.Selector) []string {
	var names []string
	for _, s := range selectors {
		if s.Name != "" {
			names = append(names, s.Name)
		}
	}
	return names
}

// grant is a right to a kind, or to the objects of some names, for those kinds of a policy.
func grant(of []string, kind stream.Kind, names []string, verbs ...string) KindGrant {
	r, _ := kind.APIResource()
	return KindGrant{Kinds: of, Rule: rbacv1.PolicyRule{
		APIGroups: []string{r.Group}, Resources: []string{r.Resource}, ResourceNames: names, Verbs: verbs,
	}}
}

// AdoptedRule is what a managed agent needs to keep what it found where it adopts
// something: a Secret for each object, and to remove those whose objects are gone. Their names are not
// known before.
func AdoptedRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"},
		Verbs: []string{"get", "list", "create", "update", "delete"}}
}

// mirroredRules are AdoptedRule and those of MirroredGrants that a configuration asks for.
func mirroredRules(cfg Settings) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	if cfg.Mode != stream.Autonomous && len(cfg.Policy.Adopt) > 0 && !cfg.Policy.Repositories() {
		rules = append(rules, AdoptedRule()) // else it may do more with Secrets
	}
	for _, grant := range MirroredGrants() {
		if cfg.Mode != stream.Autonomous &&
			slices.ContainsFunc(grant.Kinds, func(kind string) bool { return slices.Contains(cfg.Policy.Kinds, kind) }) {
			rules = append(rules, grant.Rule)
		}
	}
	return rules
}

// AutonomousRule is what an autonomous agent needs to tell the hub of its AppProjects as
// its Argo CD has them: the settings that say which of them are global.
func AutonomousRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{admission.SettingsConfigMap()},
		Verbs: []string{"get", "list", "watch"},
	}
}

func autonomousRules(cfg Settings) []rbacv1.PolicyRule {
	if cfg.Mode != stream.Autonomous {
		return nil
	}
	return []rbacv1.PolicyRule{AutonomousRule()}
}

func clusterRole(name string, rules []rbacv1.PolicyRule, subject rbacv1.Subject) []runtime.Object {
	meta := metav1.ObjectMeta{Name: name, Labels: partOf}
	return []runtime.Object{
		&rbacv1.ClusterRole{TypeMeta: rbacType("ClusterRole"), ObjectMeta: meta, Rules: rules},
		&rbacv1.ClusterRoleBinding{
			TypeMeta: rbacType("ClusterRoleBinding"), ObjectMeta: meta, Subjects: []rbacv1.Subject{subject},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		},
	}
}

func role(name, namespace string, rules []rbacv1.PolicyRule, subject rbacv1.Subject) []runtime.Object {
	meta := metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: partOf}
	return []runtime.Object{
		&rbacv1.Role{TypeMeta: rbacType("Role"), ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{
			TypeMeta: rbacType("RoleBinding"), ObjectMeta: meta, Subjects: []rbacv1.Subject{subject},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		},
	}
}

func rbacType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

// Settings are the keys of an agent's configuration that its role depends on, and
// that are validated. The others have to be keys of an agent.
type Settings struct {
	Namespace string           `koanf:"namespace"`
	Mode      stream.Mode      `koanf:"mode"`
	Access    access.Config    `koanf:"access"`
	Policy    policy.Policy    `koanf:"policy"`
	Mapping   mapping.Settings `koanf:"mapping"`
}

// KindGrant is a right that an agent needs when its policy lets the hub store any of
// some kinds.
type KindGrant struct {
	Kinds []string          `json:"kinds"`
	Rule  rbacv1.PolicyRule `json:"rule"`
}

var partOf = map[string]string{"app.kubernetes.io/part-of": "argomesh"}
