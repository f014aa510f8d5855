package access_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/proxies/access"
)

// asked are resources a caller may come up with, of each group.
var asked = map[string][]string{
	"": {
		"configmaps", "events", "namespaces", "namespaces/finalize", "nodes", "nodes/proxy", "nodes/status", "pods", "pods/attach",
		"pods/binding", "pods/ephemeralcontainers", "pods/eviction", "pods/exec", "pods/log", "pods/portforward", "pods/proxy",
		"pods/status", "secrets", "serviceaccounts", "serviceaccounts/token", "services", "services/proxy", "replicationcontrollers/scale",
	},
	"apps":                      {"controllerrevisions", "deployments", "deployments/scale", "deployments/status", "replicasets"},
	"argoproj.io":               {"applications", "rollouts"},
	"authentication.k8s.io":     {"selfsubjectreviews", "tokenreviews"},
	"authorization.k8s.io":      {"selfsubjectaccessreviews", "subjectaccessreviews"},
	"certificates.k8s.io":       {"certificatesigningrequests", "certificatesigningrequests/approval"},
	"kafka.strimzi.io":          {"kafkas", "kafkas/status", "kafkas/scale"},
	"metrics.k8s.io":            {"nodes", "pods"},
	"rbac.authorization.k8s.io": {"clusterroles", "roles"},
}

var askedVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// allows asks Kubernetes' own check of rules, the one that guards against
// escalation, whether the grants let a request through.
func allows(grants []access.Grant, r access.Request) bool {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	wanted := rbacv1.PolicyRule{Verbs: []string{r.Verb}, APIGroups: []string{r.Group}, Resources: []string{resource}}
	if r.Name != "" {
		wanted.ResourceNames = []string{r.Name}
	}
	for _, grant := range grants {
		if grant.Namespace != "" && grant.Namespace != r.Namespace {
			continue
		}
		if covered, _ := validation.Covers(grant.Rules, []rbacv1.PolicyRule{wanted}); covered {
			return true
		}
	}
	return false
}

func grantedConfigs() map[string]access.Config {
	configs := map[string]access.Config{
		"off":     {Writes: true, Secrets: v1alpha1.SecretsOn},
		"default": {Enabled: true},
		"writes":  {Enabled: true, Writes: true},
		"all switches": {
			Enabled: true, Writes: true, Secrets: v1alpha1.SecretsOn, Tokens: true, Proxy: true, Exec: true, EphemeralContainers: true, Nodes: true,
		},
		"rules": {Enabled: true, Writes: true, Exec: true, Rules: []access.Rule{
			{Name: "look", Verbs: []string{"get", "list", "watch"}},
			{Name: "web", Namespaces: []string{"web"}},
			{Name: "kafka", Verbs: []string{"get", "patch"}, Groups: []string{"kafka.strimzi.io"}, Resources: []string{"*"}},
			{Name: "one", Groups: []string{""}, Resources: []string{"configmaps", "pods/exec"}, Namespaces: []string{"api"}, Names: []string{"one", "two"}},
			{Name: "scales", Groups: []string{"apps", ""}, Resources: []string{"*/scale"}},
		}},
		"everything of the core": {Enabled: true, Writes: true, Rules: []access.Rule{
			{Name: "core", Groups: []string{"", "authentication.k8s.io", "certificates.k8s.io", "metrics.k8s.io"}, Resources: []string{"*"}},
		}},
		"subresources of the core": {Enabled: true, Writes: true, Rules: []access.Rule{
			{Name: "sub", Groups: []string{""}, Resources: []string{"*/proxy", "*/status", "*/token"}, Namespaces: []string{"web"}},
		}},
	}
	for _, name := range []string{"writes", "secrets", "tokens", "proxy", "exec", "ephemeral", "nodes", "masked"} {
		c := access.Config{Enabled: true, Rules: []access.Rule{{Name: "core", Groups: []string{"", "metrics.k8s.io"}, Resources: []string{"*"}}}}
		switch name {
		case "writes":
			c.Writes = true
		case "secrets":
			c.Secrets = v1alpha1.SecretsOn
		case "masked":
			c.Secrets, c.Writes = v1alpha1.SecretsMasked, true
		case "tokens":
			c.Tokens = true
		case "proxy":
			c.Proxy = true
		case "exec":
			c.Exec = true
		case "ephemeral":
			c.EphemeralContainers = true
		case "nodes":
			c.Nodes = true
		}
		configs["only "+name] = c
	}
	return configs
}

// What the agent's service account may do is what the agent would let through: no
// more, and no less.
func TestGrantsAreWhatIsDecided(t *testing.T) {
	for name, config := range grantedConfigs() {
		t.Run(name, func(t *testing.T) {
			p := policy(t, access.Spoke, config)
			grants, err := config.Grants(false)
			if err != nil {
				t.Fatal(err)
			}
			yes, no := 0, 0
			for group, resources := range asked {
				for _, resource := range resources {
					for _, verb := range askedVerbs {
						for _, namespace := range []string{"", "web", "api", "other"} {
							for _, object := range []string{"", "one", "three"} {
								r := access.Request{Method: "GET", Path: "/", Verb: verb, Group: group, Version: "v1", Namespace: namespace, Name: object}
								r.Resource, r.Subresource, _ = strings.Cut(resource, "/")
								decided, granted := p.Decide(r), allows(grants, r)
								if decided.Allowed != granted {
									t.Errorf("%v: the agent says %v (rule %s), its role %v", r, decided.Allowed, decided.Rule, granted)
								}
								if granted {
									yes++
								} else {
									no++
								}
							}
						}
					}
				}
			}
			if config.Enabled && (yes == 0 || no == 0) {
				t.Errorf("%d allowed and %d refused: this compares nothing", yes, no)
			}
		})
	}
}

func TestTrackedOnlyGrantsTheLookups(t *testing.T) {
	config := access.Config{Enabled: true, Exec: true, TrackedOnly: true, Rules: []access.Rule{
		{Name: "shell", Verbs: []string{"create"}, Groups: []string{""}, Resources: []string{"pods/exec"}, Namespaces: []string{"web"}},
	}}
	grants, err := config.Grants(false)
	if err != nil {
		t.Fatal(err)
	}
	for _, lookup := range []access.Request{
		{Group: "", Resource: "pods"}, {Group: "apps", Resource: "replicasets"}, {Group: "apps", Resource: "deployments"},
	} {
		lookup.Verb, lookup.Namespace, lookup.Name = "get", "web", "x"
		if !allows(grants, lookup) {
			t.Errorf("%v is not granted", lookup)
		}
		lookup.Namespace = "api"
		if allows(grants, lookup) {
			t.Errorf("%v is granted", lookup)
		}
	}
}

func TestGrantsOfImpersonation(t *testing.T) {
	config := access.Config{Enabled: true, Impersonate: []string{"system:serviceaccount:web:deployer", "jane", "system:serviceaccount:half"}}
	grants, err := config.Grants(false)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		r    access.Request
		want bool
	}{
		"the service account":          {access.Request{Resource: "serviceaccounts", Namespace: "web", Name: "deployer"}, true},
		"another":                      {access.Request{Resource: "serviceaccounts", Namespace: "web", Name: "other"}, false},
		"its namesake":                 {access.Request{Resource: "serviceaccounts", Namespace: "api", Name: "deployer"}, false},
		"the user":                     {access.Request{Resource: "users", Name: "jane"}, true},
		"what only looks like account": {access.Request{Resource: "users", Name: "system:serviceaccount:half"}, true},
		"another user":                 {access.Request{Resource: "users", Name: "admin"}, false},
		"a group":                      {access.Request{Resource: "groups", Name: "system:masters"}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.r.Verb = "impersonate"
			if got := allows(grants, tt.r); got != tt.want {
				t.Errorf("granted: %v, want %v", got, tt.want)
			}
		})
	}
}

func TestGrantsOfAllGroups(t *testing.T) {
	config := access.Config{Enabled: true, Rules: []access.Rule{{Name: "all", Groups: []string{"*"}, Resources: []string{"*"}}}}
	if _, err := config.Grants(false); !errors.Is(err, access.ErrWildcard) || !strings.Contains(err.Error(), `rule "all"`) {
		t.Errorf("error is %v", err)
	}
	grants, err := config.Grants(true)
	if err != nil {
		t.Fatal(err)
	}
	if r := (access.Request{Verb: "list", Group: "any.example", Resource: "things"}); !allows(grants, r) {
		t.Errorf("%v is not granted", r)
	}
	if r := (access.Request{Verb: "create", Group: "any.example", Resource: "things"}); allows(grants, r) {
		t.Errorf("%v is granted", r)
	}
}

// The same Config gives the same grants, in the same order, so that a file in git
// does not change by itself.
func TestGrantsAreSorted(t *testing.T) {
	for name, config := range grantedConfigs() {
		first, err := config.Grants(false)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			again, err := config.Grants(false)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(first, again, func(a, b access.Grant) bool {
				return a.Namespace == b.Namespace && slices.EqualFunc(a.Rules, b.Rules, func(a, b rbacv1.PolicyRule) bool { return a.String() == b.String() })
			}) {
				t.Fatalf("%s: %v, then %v", name, first, again)
			}
		}
	}
}
