package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/policy"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/roles"
	"github.com/argomesh/argomesh/proxies/access"
	"github.com/argomesh/argomesh/test/golden"
)

//go:generate go test -count=1 -run "^Test(Reference|ChartRoles)Golden$" -update .

// Every command is in the reference, with all its flags.
func TestReferenceGolden(t *testing.T) {
	var out bytes.Buffer
	out.WriteString("# agentctl\n\nMade from the code by `make generate`. `agentctl completion --help` says how a shell completes all this.\n\n")
	root := newRootCommand(cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard})
	root.DisableAutoGenTag = true
	if err := writeCommand(&out, root); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "../../docs/reference/agentctl.md", out.Bytes())
}

func writeCommand(w io.Writer, cmd *cobra.Command) error {
	cmd.InitDefaultHelpCmd()
	cmd.InitDefaultHelpFlag()
	link := func(file string) string { // agentctl_agent_create.md
		return "#" + strings.ReplaceAll(strings.TrimSuffix(file, ".md"), "_", "-")
	}
	if err := doc.GenMarkdownCustom(cmd, w, link); err != nil {
		return err
	}
	for _, below := range cmd.Commands() {
		if !below.IsAvailableCommand() || below.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := writeCommand(w, below); err != nil {
			return err
		}
	}
	return nil
}

// switches set those of live access, by their keys.
func switches() map[string]func(*access.Config, bool) {
	out := map[string]func(*access.Config, bool){
		"secrets": func(c *access.Config, on bool) {
			c.Secrets = v1alpha1.SecretsOff
			if on {
				c.Secrets = v1alpha1.SecretsOn
			}
		},
	}
	for _, s := range access.Switches() {
		out[s.Key] = func(c *access.Config, on bool) { *s.Of(c) = on }
	}
	return out
}

// switched is a rule that holds when all its switches are on.
type switched struct {
	Switches []string          `json:"switches,omitempty"`
	Rule     rbacv1.PolicyRule `json:"rule"`
}

// chartRoles is what the agent's chart makes roles of.
type chartRoles struct {
	Cluster   []rbacv1.PolicyRule `json:"cluster"`
	Namespace []rbacv1.PolicyRule `json:"namespace"`
	Live      []switched          `json:"live"`
	// Masked is what there is beside Live when access.secrets is masked.
	Masked   rbacv1.PolicyRule `json:"masked"`
	Mirrored []roles.KindGrant `json:"mirrored"`
	// Adopted is for a policy that adopts, and that has no grant for Secrets of Mirrored.
	Adopted rbacv1.PolicyRule `json:"adopted"`
	// Autonomous is for agents of that mode.
	Autonomous rbacv1.PolicyRule `json:"autonomous"`
	// Applications is for further namespaces, and Namespaces to make those.
	Applications rbacv1.PolicyRule `json:"applications"`
	Namespaces   rbacv1.PolicyRule `json:"namespaces"`
	// Events goes with Applications.
	Events rbacv1.PolicyRule `json:"events"`
	// Kinds are those of a policy that names none.
	Kinds []string `json:"kinds"`
}

// permission is one of RBAC's.
type permission struct{ group, resource, verb, url string }

// granted returns what a configuration without rules grants, all of it in every
// namespace.
func granted(t *testing.T, c access.Config) map[permission]bool {
	t.Helper()
	grants, err := c.Grants(false)
	if err != nil {
		t.Fatal(err)
	}
	if len(grants) != 1 || grants[0].Namespace != "" {
		t.Fatalf("switches over the common kinds need one role, not %d", len(grants))
	}
	return permissions(t, grants[0].Rules)
}

func permissions(t *testing.T, rules []rbacv1.PolicyRule) map[permission]bool {
	t.Helper()
	all := map[permission]bool{}
	for _, rule := range rules {
		if len(rule.ResourceNames) > 0 {
			t.Fatalf("a rule for names, which the chart's table cannot say: %v", rule)
		}
		for _, verb := range rule.Verbs {
			for _, url := range rule.NonResourceURLs {
				all[permission{verb: verb, url: url}] = true
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					all[permission{group: group, resource: resource, verb: verb}] = true
				}
			}
		}
	}
	return all
}

// liveRoles turns what the configuration grants into a table of which switches each
// permission needs: those without which it is gone.
func liveRoles(t *testing.T) []switched {
	t.Helper()
	on := access.Config{Enabled: true}
	for _, set := range switches() {
		set(&on, true)
	}
	needs := map[permission][]string{}
	for p := range granted(t, on) {
		needs[p] = nil
	}
	for _, name := range slices.Sorted(maps.Keys(switches())) {
		off := on
		switches()[name](&off, false)
		left := granted(t, off)
		for p := range needs {
			if !left[p] {
				needs[p] = append(needs[p], name)
			}
		}
	}

	// Together what has the same switches: first the verbs of a resource, then the
	// resources with the same verbs.
	type of struct{ switches, group, resource string }
	verbs := map[of][]string{}
	urls := map[string][]string{}
	for p, switches := range needs {
		joined := strings.Join(switches, ",")
		if p.url != "" {
			urls[joined] = append(urls[joined], p.url)
			continue
		}
		key := of{joined, p.group, p.resource}
		verbs[key] = append(verbs[key], p.verb)
	}
	type rule struct{ switches, group, verbs string }
	resources := map[rule][]string{}
	for key, list := range verbs {
		slices.SortFunc(list, func(a, b string) int { return cmp.Compare(verbOrder(a), verbOrder(b)) })
		r := rule{key.switches, key.group, strings.Join(list, ",")}
		resources[r] = append(resources[r], key.resource)
	}
	var table []switched
	for r, list := range resources {
		slices.Sort(list)
		table = append(table, switched{Switches: split(r.switches), Rule: rbacv1.PolicyRule{
			APIGroups: []string{r.group}, Resources: list, Verbs: split(r.verbs),
		}})
	}
	for switches, list := range urls {
		slices.Sort(list)
		table = append(table, switched{Switches: split(switches), Rule: rbacv1.PolicyRule{NonResourceURLs: list, Verbs: []string{"get"}}})
	}
	slices.SortFunc(table, func(a, b switched) int {
		return cmp.Or(slices.Compare(a.Switches, b.Switches), slices.Compare(a.Rule.APIGroups, b.Rule.APIGroups),
			slices.Compare(a.Rule.Resources, b.Rule.Resources), slices.Compare(a.Rule.Verbs, b.Rule.Verbs))
	})
	return table
}

func verbOrder(verb string) int {
	return slices.Index([]string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}, verb)
}

func split(joined string) []string {
	if joined == "" {
		return nil
	}
	return strings.Split(joined, ",")
}

// The chart has the roles that `agentctl agent role` prints, as a table of the
// switches, since a template cannot ask package access.
func TestChartRolesGolden(t *testing.T) {
	table := liveRoles(t)
	content, err := yaml.Marshal(chartRoles{
		Cluster: roles.OwnClusterRules(), Namespace: roles.OwnRules(), Live: table, Masked: maskedRule(t),
		Mirrored: roles.MirroredGrants(), Adopted: roles.AdoptedRule(), Autonomous: roles.AutonomousRule(), Kinds: policy.Default().Kinds,
		Applications: roles.ApplicationRule(), Namespaces: roles.NamespaceRule(), Events: roles.EventRule(),
	})
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "../../charts/argomesh-agent/files/roles.yaml",
		append([]byte("# What an agent needs on its spoke, made from the code by `make generate`.\n"), content...))
}

// maskedRule is what masked Secrets need, whatever else is on.
func maskedRule(t *testing.T) rbacv1.PolicyRule {
	t.Helper()
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list"}}
	for _, c := range []access.Config{{Enabled: true}, {Enabled: true, Writes: true, Tokens: true, Exec: true}} {
		without := granted(t, c)
		c.Secrets = v1alpha1.SecretsMasked
		more := granted(t, c)
		maps.DeleteFunc(more, func(p permission, _ bool) bool { return without[p] })
		if !maps.Equal(more, permissions(t, []rbacv1.PolicyRule{rule})) {
			t.Fatalf("masked Secrets need %v", more)
		}
	}
	return rule
}

// For every combination of switches the table says what the configuration grants.
func TestChartRolesFollowEverySwitch(t *testing.T) {
	table := liveRoles(t)
	names := slices.Sorted(maps.Keys(switches()))
	for combination := range 1 << len(names) {
		c, on := access.Config{Enabled: true}, map[string]bool{}
		for i, name := range names {
			on[name] = combination&(1<<i) != 0
			switches()[name](&c, on[name])
		}
		var rules []rbacv1.PolicyRule
		for _, s := range table {
			if !slices.ContainsFunc(s.Switches, func(name string) bool { return !on[name] }) {
				rules = append(rules, s.Rule)
			}
		}
		if got, want := permissions(t, rules), granted(t, c); !maps.Equal(got, want) {
			t.Errorf("%s: the table grants %d permissions, the configuration %d", fmt.Sprintf("%+v", c), len(got), len(want))
		}
	}
}
