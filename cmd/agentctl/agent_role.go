package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/argomesh/argomesh/backends/admission"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/cmd/internal/agentconfig"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/stream"
)

type roleCommand struct {
	std       streams
	config    string
	account   string
	allGroups bool
}

// roleSettings are the keys of an agent's configuration that its role depends on, and
// that are validated. The others have to be keys of an agent.
type roleSettings struct {
	Namespace string           `koanf:"namespace"`
	Mode      stream.Mode      `koanf:"mode"`
	Access    access.Config    `koanf:"access"`
	Policy    policy.Policy    `koanf:"policy"`
	Mapping   mapping.Settings `koanf:"mapping"`
}

func newRoleCommand(std streams) *cobra.Command {
	c := &roleCommand{std: std}
	cmd := &cobra.Command{
		Use:   "role --config FILE",
		Short: "Print the roles that an agent's configuration needs on its spoke",
		Long: "Print the ClusterRoles and Roles, with their bindings, that the service account of\n" +
			"an agent needs on its spoke: what the agent itself does, and what access, policy and\n" +
			"mapping in its configuration let the hub do. Nothing is contacted. Apply it on the spoke again\n" +
			"whenever one of them has changed; roles of namespaces that are no longer named there\n" +
			"are to be deleted.",
		Example: "  agentctl agent role --config agent.yaml | kubectl --context spoke apply -f -",
		Args:    none,
		RunE:    func(*cobra.Command, []string) error { return c.run() },
	}
	flags := cmd.Flags()
	flags.StringVar(&c.config, "config", "", "the agent's YAML file; its namespace, mode, access, policy and mapping count")
	flags.StringVar(&c.account, "service-account", "argomesh-agent", "name of the agent's service account, in the agent's namespace; the roles are called the same")
	flags.BoolVar(&c.allGroups, "all-groups", false, `write rules with group "*" as they are, although RBAC then also grants what is switched off; the agent goes on refusing that`)
	register(cmd, "service-account", cobra.NoFileCompletions)
	return cmd
}

func (c *roleCommand) run() error {
	if c.config == "" {
		return errors.New("--config is missing: name the YAML file the agent runs with")
	}
	if problems := validation.IsDNS1123Subdomain(c.account); len(problems) > 0 {
		return fmt.Errorf("--service-account %q: %s", c.account, problems[0])
	}
	all, err := config.Read(config.File{Program: "agent", Flag: "config", Path: c.config}, agentconfig.Default())
	cfg := roleSettings{Namespace: all.Namespace, Mode: all.Mode, Access: all.Access, Policy: all.Policy, Mapping: all.Mapping}
	if err == nil {
		err = config.Validate(&cfg)
	}
	if err != nil {
		return err
	}
	grants, err := cfg.Access.Grants(c.allGroups)
	if errors.Is(err, access.ErrWildcard) {
		return fmt.Errorf("access: %w, or accept that with --all-groups", err)
	}
	if err != nil {
		return err
	}
	return printRoles(c.std.out, agentRoles(c.account, cfg, grants))
}

// agentRoles returns the roles of the service account of an agent, and their
// bindings.
func agentRoles(account string, cfg roleSettings, live []access.Grant) []runtime.Object {
	namespace := cfg.Namespace
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: namespace}
	everywhere := ownClusterRules()
	watched := cfg.Mapping.Watched(namespace)
	if len(watched) == 0 {
		everywhere = append(everywhere, applicationRule(), eventRule())
	}
	if cfg.Mapping.CreateNamespaces {
		everywhere = append(everywhere, namespaceRule())
	}
	out := slices.Concat(
		clusterRole(account, everywhere, subject),
		role(account, namespace, slices.Concat(ownRules(), mirroredRules(cfg), autonomousRules(cfg)), subject),
	)
	for _, further := range watched[min(1, len(watched)):] {
		out = append(out, role(account+"-applications", further, []rbacv1.PolicyRule{applicationRule(), eventRule()}, subject)...)
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

// ownClusterRules are what an agent itself needs outside of its namespace: the
// identity of the Kubernetes cluster, which is the UID of a namespace, and what its API
// server knows of Applications and AppProjects.
func ownClusterRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{
			APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"},
			ResourceNames: []string{"applications.argoproj.io", "appprojects.argoproj.io"}, Verbs: []string{"list", "watch"},
		},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{metav1.NamespaceSystem}, Verbs: []string{"get"}},
		{NonResourceURLs: []string{"/version"}, Verbs: []string{"get"}},
	}
}

// applicationRule is what an agent needs in each further namespace of Applications.
func applicationRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{"argoproj.io"}, Resources: []string{"applications"}, Verbs: []string{"get", "list", "watch", "create", "update", "delete"},
	}
}

// eventRule is what an agent needs there to tell the hub what Argo CD says of Applications.
func eventRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"list", "watch"}}
}

// namespaceRule is what an agent needs to make such namespaces.
func namespaceRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create"}}
}

// ownRules are what an agent itself needs in its namespace.
func ownRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{agentconfig.Name}, Verbs: []string{"get", "create", "patch"}},
		applicationRule(),
		eventRule(),
		{APIGroups: []string{"argoproj.io"}, Resources: []string{"appprojects"}, Verbs: []string{"get", "list", "watch"}}, // an owner's own too
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},            // has no name yet
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{agentconfig.Name}, Verbs: []string{"get", "watch", "update"}},
	}
}

// kindGrant is a right that an agent needs when its policy lets the hub store any of
// some kinds.
type kindGrant struct {
	Kinds []string          `json:"kinds"`
	Rule  rbacv1.PolicyRule `json:"rule"`
}

// mirroredGrants are what a managed agent needs for the kinds beside Applications. RBAC knows no
// labels, so the right to Secrets is that to all of the namespace; the agent reads and
// writes those of repositories alone. Nor can it bind the making of a ConfigMap to a
// name.
func mirroredGrants() []kindGrant {
	var grants []kindGrant
	var projects, trust, credentials []string
	for _, kind := range policy.Kinds() {
		only := policy.Policy{Kinds: []string{kind}}
		if names := only.Trust(); len(names) > 0 {
			trust = append(trust, kind)
			grants = append(grants, kindGrant{Kinds: []string{kind}, Rule: rbacv1.PolicyRule{
				APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: names, Verbs: []string{"get", "list", "watch", "update"},
			}})
		}
		if only.AppProjects() {
			projects = append(projects, kind)
		}
		if only.Repositories() {
			credentials = append(credentials, kind)
		}
	}
	return append(grants,
		kindGrant{Kinds: projects, Rule: rbacv1.PolicyRule{
			APIGroups: []string{"argoproj.io"}, Resources: []string{"appprojects"}, Verbs: []string{"create", "update", "delete"},
		}},
		kindGrant{Kinds: trust, Rule: rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"},
		}},
		kindGrant{Kinds: credentials, Rule: rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch", "create", "update", "delete"},
		}},
	)
}

// adoptedRule is what a managed agent needs to keep what it found where it adopts
// something: a Secret for each object, and to remove those whose objects are gone. Their names are not
// known before.
func adoptedRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "create", "update", "delete"}}
}

// mirroredRules are adoptedRule and those of mirroredGrants that a configuration asks for.
func mirroredRules(cfg roleSettings) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	if cfg.Mode != stream.Autonomous && len(cfg.Policy.Adopt) > 0 && !cfg.Policy.Repositories() {
		rules = append(rules, adoptedRule()) // else it may do more with Secrets
	}
	for _, grant := range mirroredGrants() {
		if cfg.Mode != stream.Autonomous && slices.ContainsFunc(grant.Kinds, func(kind string) bool { return slices.Contains(cfg.Policy.Kinds, kind) }) {
			rules = append(rules, grant.Rule)
		}
	}
	return rules
}

// autonomousRule is what an autonomous agent needs to tell the hub of its AppProjects as
// its Argo CD has them: the settings that say which of them are global.
func autonomousRule() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{admission.SettingsConfigMap()}, Verbs: []string{"get", "list", "watch"},
	}
}

func autonomousRules(cfg roleSettings) []rbacv1.PolicyRule {
	if cfg.Mode != stream.Autonomous {
		return nil
	}
	return []rbacv1.PolicyRule{autonomousRule()}
}

var partOf = map[string]string{"app.kubernetes.io/part-of": "argomesh"}

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

// printRoles prints objects as YAML, one document each.
func printRoles(w io.Writer, objects []runtime.Object) error {
	p := &printers.YAMLPrinter{}
	for _, object := range objects {
		if err := p.PrintObj(object, w); err != nil {
			return err
		}
	}
	return nil
}
