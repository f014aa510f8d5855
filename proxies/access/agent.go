package access

import "github.com/argomesh/argomesh/api/v1alpha1"

// OfAgent returns the rules that an Agent has for the hub's side. An Agent without
// spec.access allows nothing.
func OfAgent(spec v1alpha1.AgentSpec) Config {
	a := spec.Access
	if a == nil {
		return Config{}
	}
	out := Config{
		Enabled: a.Enabled, Secrets: a.Secrets.Shown, Impersonate: a.Impersonate, TrackedOnly: a.TrackedOnly,
	}
	for _, s := range switches {
		*s.Of(&out) = *s.OfAgent(a)
	}
	for _, r := range a.Rules {
		out.Rules = append(out.Rules, Rule{
			Name: r.Name, Verbs: r.Verbs, Groups: r.Groups, Resources: r.Resources, Namespaces: r.Namespaces, Names: r.Names,
		})
	}
	return out
}
