package access

import (
	"slices"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

// Switch is a use of live access that each side allows or refuses, by a field of the same
// meaning in [Config] and in spec.access of an Agent. Secrets are none: they have a third
// value.
type Switch struct {
	// Rule is the rule that refuses, and the word of agentctl agent set --access.
	Rule string
	// Key is that of the agent's configuration, Field that of spec.access.
	Key, Field string
	// Of and OfAgent return where the value is kept.
	Of      func(*Config) *bool
	OfAgent func(*v1alpha1.AgentAccess) *bool

	// use says what of it a call asks for, as the subject of "disabled"; "" for nothing.
	use func(Request) string
}

// switches are in the order in which they refuse.
var switches = []Switch{
	{
		Rule: RuleTokens, Key: "tokens", Field: "tokens",
		Of:      func(c *Config) *bool { return &c.Tokens },
		OfAgent: func(a *v1alpha1.AgentAccess) *bool { return &a.Tokens },
		use:     when(isTokens, "access to credentials is"),
	},
	{
		Rule: RuleProxy, Key: "proxy", Field: "proxy",
		Of:      func(c *Config) *bool { return &c.Proxy },
		OfAgent: func(a *v1alpha1.AgentAccess) *bool { return &a.Proxy },
		use:     when(Request.IsProxy, "access through a proxy of pods, services and nodes is"),
	},
	{
		Rule: RuleExec, Key: "exec", Field: "exec",
		Of:      func(c *Config) *bool { return &c.Exec },
		OfAgent: func(a *v1alpha1.AgentAccess) *bool { return &a.Exec },
		use: func(r Request) string {
			if isSession(r) {
				return "a session over an upgraded connection is"
			}
			return when(isExec, "exec, attach and port-forward are")(r)
		},
	},
	{
		Rule: RuleEphemeral, Key: "ephemeral_containers", Field: "ephemeralContainers",
		Of:      func(c *Config) *bool { return &c.EphemeralContainers },
		OfAgent: func(a *v1alpha1.AgentAccess) *bool { return &a.EphemeralContainers },
		use:     when(isEphemeral, "adding ephemeral containers is"),
	},
	{
		Rule: RuleNodes, Key: "nodes", Field: "nodes",
		Of:      func(c *Config) *bool { return &c.Nodes },
		OfAgent: func(a *v1alpha1.AgentAccess) *bool { return &a.Nodes },
		use:     when(isNodes, "access to nodes is"),
	},
	{
		Rule: RuleWrites, Key: "writes", Field: "writes",
		Of:      func(c *Config) *bool { return &c.Writes },
		OfAgent: func(a *v1alpha1.AgentAccess) *bool { return &a.Writes },
		use:     when(isWrite, "writing is"),
	},
}

// Switches returns all of them.
func Switches() []Switch { return slices.Clone(switches) }

func when(is func(Request) bool, what string) func(Request) string {
	return func(r Request) string {
		if is(r) {
			return what
		}
		return ""
	}
}
