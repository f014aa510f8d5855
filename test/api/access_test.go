package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/proxies/access"
)

// The CRD refuses what the rules refuse: what the API server took is in force.
func TestCRDAgreesWithAccess(t *testing.T) {
	c := loadCRD(t)
	numbered := func(n int) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = fmt.Sprintf("n%d", i)
		}
		return out
	}
	rules := func(n int) []v1alpha1.AccessRule {
		out := make([]v1alpha1.AccessRule, n)
		for i := range out {
			out[i].Name = fmt.Sprintf("r%d", i)
		}
		return out
	}
	rule := func(change func(*v1alpha1.AccessRule)) v1alpha1.AgentAccess {
		r := v1alpha1.AccessRule{Name: "a"}
		change(&r)
		return v1alpha1.AgentAccess{Enabled: true, Rules: []v1alpha1.AccessRule{r}}
	}
	on := func(resources ...string) v1alpha1.AgentAccess {
		return rule(func(r *v1alpha1.AccessRule) { r.Groups, r.Resources = []string{""}, resources })
	}
	tests := map[string]v1alpha1.AgentAccess{
		"nothing": {},
		"enabled": {Enabled: true},
		"every switch": {
			Enabled: true, Writes: true, Secrets: v1alpha1.SecretAccess{Shown: v1alpha1.SecretsOn}, Tokens: true, Proxy: true, Exec: true, EphemeralContainers: true, Nodes: true,
			TrackedOnly: true, Impersonate: []string{"jane", "system:serviceaccount:web:deployer", "with space"},
		},
		"masked Secrets":          {Secrets: v1alpha1.SecretAccess{Shown: v1alpha1.SecretsMasked}},
		"another word":            {Secrets: v1alpha1.SecretAccess{Shown: "keys"}},
		"users at the limit":      {Impersonate: numbered(64)},
		"a user too many":         {Impersonate: numbered(65)},
		"everybody":               {Impersonate: []string{"*"}},
		"nobody":                  {Impersonate: []string{""}},
		"a space before":          {Impersonate: []string{" jane"}},
		"a space behind":          {Impersonate: []string{"jane "}},
		"rules at the limit":      {Rules: rules(32)},
		"a rule too many":         {Rules: rules(33)},
		"rules of one name":       {Rules: []v1alpha1.AccessRule{{Name: "a"}, {Name: "a"}}},
		"no name":                 {Rules: []v1alpha1.AccessRule{{}}},
		"a name in upper case":    {Rules: []v1alpha1.AccessRule{{Name: "A"}}},
		"a name that is long":     {Rules: []v1alpha1.AccessRule{{Name: strings.Repeat("a", 64)}}},
		"the name of the default": {Rules: []v1alpha1.AccessRule{{Name: access.CommonRule}}},
		"every list": rule(func(r *v1alpha1.AccessRule) {
			r.Verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
			r.Groups, r.Resources = []string{"", "*", "apps", "kafka.strimzi.io"}, []string{"*", "pods", "pods/log", "*/scale"}
			r.Namespaces, r.Names = []string{"web"}, []string{"one", "system:node", "a b"}
		}),
		"all verbs":                   rule(func(r *v1alpha1.AccessRule) { r.Verbs = []string{"*"} }),
		"groups alone":                rule(func(r *v1alpha1.AccessRule) { r.Groups = []string{"apps"} }),
		"resources alone":             rule(func(r *v1alpha1.AccessRule) { r.Resources = []string{"pods"} }),
		"an odd group":                rule(func(r *v1alpha1.AccessRule) { r.Groups, r.Resources = []string{"*.io"}, []string{"*"} }),
		"a group in upper case":       rule(func(r *v1alpha1.AccessRule) { r.Groups, r.Resources = []string{"Apps"}, []string{"*"} }),
		"subresources of one":         on("pods/*"),
		"a kind":                      on("Pod"),
		"a subresource too deep":      on("pods/proxy/x"),
		"no resource":                 on(""),
		"resources at the limit":      on(numbered(64)...),
		"a resource too many":         on(numbered(65)...),
		"a pattern of namespaces":     rule(func(r *v1alpha1.AccessRule) { r.Namespaces = []string{"web-*"} }),
		"no namespace":                rule(func(r *v1alpha1.AccessRule) { r.Namespaces = []string{""} }),
		"a namespace that is long":    rule(func(r *v1alpha1.AccessRule) { r.Namespaces = []string{strings.Repeat("a", 64)} }),
		"a pattern of names":          rule(func(r *v1alpha1.AccessRule) { r.Names = []string{"*"} }),
		"a name with a slash":         rule(func(r *v1alpha1.AccessRule) { r.Names = []string{"a/b"} }),
		"an empty name of an object":  rule(func(r *v1alpha1.AccessRule) { r.Names = []string{""} }),
		"a name with a percent sign":  rule(func(r *v1alpha1.AccessRule) { r.Names = []string{"a%2fb"} }),
		"namespaces at their longest": rule(func(r *v1alpha1.AccessRule) { r.Namespaces = []string{strings.Repeat("a", 63)} }),
	}
	for _, name := range access.BuiltIn() {
		tests["the built-in name "+name] = v1alpha1.AgentAccess{Rules: []v1alpha1.AccessRule{{Name: name}}}
	}
	accepted := 0
	for name, spec := range tests {
		t.Run(name, func(t *testing.T) {
			agent := edge1(func(a *v1alpha1.Agent) { a.Spec.Access = &spec })
			_, err := access.New(access.Hub, access.OfAgent(agent.Spec))
			refusals := c.check(t, agent, nil)
			if (err == nil) != (len(refusals) == 0) {
				t.Errorf("the rules say %v, the CRD %q", err, refusals)
			}
			if err == nil {
				accepted++
			}
		})
	}
	if accepted < 8 {
		t.Errorf("only %d are accepted", accepted)
	}
}
