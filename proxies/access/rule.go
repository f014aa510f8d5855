package access

// Side is who decides.
type Side int

// The two sides.
const (
	// Hub decides by spec.access of the Agent.
	Hub Side = iota + 1
	// Spoke decides by the agent's configuration. It has the last word.
	Spoke
)

// String returns "hub" or "spoke".
func (s Side) String() string {
	if s == Hub {
		return "hub"
	}
	return "spoke"
}

// Names of the rules that are not in a Config. A decision names one of these, or a
// rule of the Config.
const (
	RuleEnabled       = "enabled"
	RuleDiscovery     = "discovery" // allows versions, discovery, OpenAPI and health, the first two whatever a Config says
	RuleNonResource   = "non-resource-paths"
	RuleImpersonation = "impersonation"
	RuleSecrets       = "secrets"
	RuleTokens        = "tokens"
	RuleProxy         = "proxy"
	RuleExec          = "exec"
	RuleEphemeral     = "ephemeral-containers"
	RuleNodes         = "nodes"
	RuleWrites        = "writes"
	RuleHubController = "hub-controller"
	RuleTrackedOnly   = "tracked-only"
	RuleDefault       = "deny-by-default" // no rule covers the call
)

// BuiltIn returns the names that no rule of a Config may have.
func BuiltIn() []string {
	names := []string{
		RuleEnabled, RuleDiscovery, RuleNonResource, RuleImpersonation, RuleSecrets, RuleHubController, RuleTrackedOnly,
		RuleDefault,
	}
	for _, s := range switches {
		names = append(names, s.Rule)
	}
	return names
}
