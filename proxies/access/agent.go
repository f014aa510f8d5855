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
		Enabled: a.Enabled, Writes: a.Writes, Secrets: a.Secrets.Shown, Tokens: a.Tokens, Proxy: a.Proxy, Exec: a.Exec,
		EphemeralContainers: a.EphemeralContainers, Nodes: a.Nodes, Impersonate: a.Impersonate, TrackedOnly: a.TrackedOnly,
	}
	for _, r := range a.Rules {
		out.Rules = append(out.Rules, Rule{
			Name: r.Name, Verbs: r.Verbs, Groups: r.Groups, Resources: r.Resources, Namespaces: r.Namespaces, Names: r.Names,
		})
	}
	return out
}
