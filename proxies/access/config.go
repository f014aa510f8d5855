package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// Limits of a Config. Those of spec.access are the same.
const (
	// MaxRules is the largest number of rules.
	MaxRules = 32
	// MaxItems is the largest number of entries of one list.
	MaxItems = 64
)

// Config says what live access may do, on either side. Its zero value allows
// nothing but to learn the version and the kinds. The tags are the keys of the agent's configuration; see [OfAgent] for
// the hub.
//
// A call is allowed when its kind of use is switched on and a rule covers it. Enabled
// alone, without Rules, allows discovery and reading the common kinds (see
// docs/access.md) in every namespace.
type Config struct {
	// Enabled switches live access on.
	Enabled bool `koanf:"enabled" help:"switches live access by the hub on: discovery of all kinds and reading of common ones; the version and Kubernetes' own kinds are told without"`
	// Writes lets through what changes something: create, update, patch, delete,
	// deletecollection, evictions. Secrets and Nodes need their own switch as well.
	Writes bool `koanf:"writes" help:"allows create, update, patch, delete, evictions and scale"`
	// Secrets lets through whatever is about Secrets; masked, what reads them, of which
	// the caller gets keys and sizes.
	Secrets v1alpha1.SecretsShown `koanf:"secrets" help:"allows access to Secrets; changing them needs writes too. masked shows their keys and the sizes of their values alone, and changes nothing"`
	// Tokens lets through what hands out or tests credentials: tokens of service
	// accounts, token reviews, certificate requests.
	Tokens bool `koanf:"tokens" help:"allows tokens of service accounts, token reviews and certificate requests"`
	// Proxy lets through subresource proxy of pods, services and nodes, by which
	// everything that listens in the Kubernetes cluster can be reached.
	Proxy bool `koanf:"proxy" help:"allows subresource proxy of pods, services and nodes"`
	// Exec lets through exec, attach and port-forward, and every other upgrade but those
	// of watches, logs and proxies.
	Exec bool `koanf:"exec" help:"allows exec, attach, port-forward and all else that upgrades its connection, but for watches, logs and proxies"`
	// EphemeralContainers lets through adding containers to a running pod.
	EphemeralContainers bool `koanf:"ephemeral_containers" help:"allows adding containers to a running pod"`
	// Nodes lets through whatever is about nodes.
	Nodes bool `koanf:"nodes" help:"allows access to nodes; changing them needs writes too, their proxy proxy and exec"`
	// Impersonate are the users that a call may ask to be, by their exact names, such
	// as system:serviceaccount:web:deployer. A user is impersonated without groups,
	// UID and extra fields. Empty means no one.
	Impersonate []string `koanf:"impersonate" help:"users that a call may ask to be, by exact names such as system:serviceaccount:web:deployer"`
	// TrackedOnly restricts calls to objects that an Argo CD Application tracks, or
	// that belong to one of those; see [Tracker].
	TrackedOnly bool `koanf:"tracked_only" help:"restricts live access to objects that an Argo CD Application tracks, and what belongs to them"`
	// TrackingLabel is the label by which the spoke's Argo CD tracks, where it does
	// that (its setting application.instanceLabelKey). Empty means that only the
	// annotation counts. It has no meaning on the hub.
	TrackingLabel string `koanf:"tracking_label" help:"label by which the spoke's Argo CD tracks, such as app.kubernetes.io/instance; empty for its annotation alone"`
	// Rules say which calls are covered. Empty means one rule for the common kinds,
	// [CommonRule].
	Rules []Rule `koanf:"rules" help:"which kinds, namespaces and names the switches are about; empty for the common kinds everywhere"`
}

// Rule covers calls. A call is covered when every list that is not empty has it.
type Rule struct {
	// Name is what decisions call the rule: a DNS label, unique among the rules.
	Name string `koanf:"name" help:"what decisions call the rule: a DNS label of its own"`
	// Verbs are those of Kubernetes' RBAC. Empty means all; what changes something
	// needs Config.Writes in any case.
	Verbs []string `koanf:"verbs" help:"those of RBAC; empty for all"`
	// Groups are API groups, "" for the core, "*" for all, and Resources are plural
	// names, with the subresource behind a slash, as in RBAC: "pods", "pods/log",
	// "*/scale", or "*" for all resources and subresources. Both are given or neither,
	// which means the common kinds.
	Groups    []string `koanf:"groups" help:"API groups, an empty one for the core, * for all; empty, with resources, for the common kinds"`
	Resources []string `koanf:"resources" help:"plural names, with the subresource behind a slash: pods, pods/log, */scale, *"`
	// Namespaces are names, without patterns. Empty means all, and what has no
	// namespace. Otherwise only calls within one of them are covered.
	Namespaces []string `koanf:"namespaces" help:"exact names; empty for all, and for what has no namespace"`
	// Names are those of objects. Empty means all. Otherwise only calls that name one
	// of them are covered; of lists and watches those with field selector
	// metadata.name.
	Names []string `koanf:"names" help:"exact names of objects; empty for all"`
}

// CommonRule is the name of the rule that there is when Config has none.
const CommonRule = "common-kinds"

// The verbs a rule may have: those that change nothing, and those that do.
var (
	reads  = []string{"get", "list", "watch"}
	writes = []string{"create", "update", "patch", "delete", "deletecollection"}
	verbs  = slices.Concat(reads, writes)
)

// Validate reports every problem, joined.
func (c Config) Validate() error {
	var problems []error
	if len(c.Rules) > MaxRules {
		problems = append(problems, fmt.Errorf("%d rules are more than %d", len(c.Rules), MaxRules))
	}
	if !slices.Contains([]v1alpha1.SecretsShown{v1alpha1.SecretsOff, v1alpha1.SecretsMasked, v1alpha1.SecretsOn},
		c.Secrets) {
		problems = append(problems, fmt.Errorf("secrets: %q is not one of true, false and masked", string(c.Secrets)))
	}
	problems = append(problems, few("impersonate", c.Impersonate))
	for _, user := range c.Impersonate {
		if user == "" || user != strings.TrimSpace(user) || user == "*" {
			problems = append(problems,
				fmt.Errorf("impersonate: %q is not a user: give exact names, such as system:serviceaccount:web:deployer", user))
		}
	}
	if c.TrackingLabel != "" && len(validation.IsQualifiedName(c.TrackingLabel)) > 0 {
		problems = append(problems,
			fmt.Errorf("tracking_label: %q is not a label key: use one such as app.kubernetes.io/instance", c.TrackingLabel))
	}
	seen := map[string]bool{}
	for i, rule := range c.Rules {
		if seen[rule.Name] {
			problems = append(problems, fmt.Errorf("rules[%d]: the name %q is taken: give each rule its own", i, rule.Name))
		}
		seen[rule.Name] = true
		if err := rule.validate(); err != nil {
			problems = append(problems, fmt.Errorf("rules[%d]: %w", i, err))
		}
	}
	return errors.Join(problems...)
}

// IsRule reports whether name can be that of a rule, built in or of a Config.
func IsRule(name string) bool { return len(validation.IsDNS1123Label(name)) == 0 }

func (r Rule) validate() error {
	var problems []error
	if !IsRule(r.Name) {
		problems = append(problems, fmt.Errorf("name: %q is not a DNS label: use a-z, 0-9 and '-', at most 63", r.Name))
	}
	if slices.Contains(BuiltIn(), r.Name) {
		problems = append(problems, fmt.Errorf("name: %q is built in: choose another", r.Name))
	}
	for _, verb := range r.Verbs {
		if !slices.Contains(verbs, verb) {
			problems = append(problems, fmt.Errorf("verbs: %q is unknown: use %s", verb, strings.Join(verbs, ", ")))
		}
	}
	if len(r.Resources) > 0 && len(r.Groups) == 0 {
		problems = append(problems,
			errors.New(`groups: is empty while resources are named: give their API groups, "" for the core`))
	}
	if len(r.Groups) > 0 && len(r.Resources) == 0 {
		problems = append(problems,
			errors.New(`resources: is empty while groups are named: give resources of these groups, "*" for all`))
	}
	for _, group := range r.Groups {
		if group != "" && group != "*" && len(validation.IsDNS1123Subdomain(group)) > 0 {
			problems = append(problems,
				fmt.Errorf(`groups: %q is not an API group: use one such as apps, "" for the core, or "*"`, group))
		}
	}
	for _, resource := range r.Resources {
		if !isResource(resource) {
			problems = append(problems,
				fmt.Errorf(`resources: %q is not a resource: use one such as pods, pods/log, */scale or "*"`, resource))
		}
	}
	for _, namespace := range r.Namespaces {
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			problems = append(problems,
				fmt.Errorf("namespaces: %q is not a namespace: patterns are not supported here", namespace))
		}
	}
	for _, name := range r.Names {
		if name == "" || name == "*" || strings.ContainsFunc(name, confusing) || strings.Contains(name, "/") {
			problems = append(problems, fmt.Errorf("names: %q is not a name: patterns are not supported here", name))
		}
	}
	problems = append(problems, few("verbs", r.Verbs), few("groups", r.Groups), few("resources", r.Resources),
		few("namespaces", r.Namespaces), few("names", r.Names))
	return errors.Join(problems...)
}

// isResource reports whether text is a resource of a rule, in a form that RBAC has
// too.
func isResource(text string) bool {
	resource, subresource, found := strings.Cut(text, "/")
	ok := func(s string) bool { return len(validation.IsDNS1123Subdomain(s)) == 0 }
	return (resource == "*" || ok(resource)) && (!found || ok(subresource))
}

func few(key string, list []string) error {
	if len(list) > MaxItems {
		return fmt.Errorf("%s: %d entries are more than %d", key, len(list), MaxItems)
	}
	return nil
}
