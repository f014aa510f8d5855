package resource

// The rules in a record of a call that comes to no decision of a policy: the hub's registry
// or its token does not let it through, or its path is none of an agent.
const (
	ruleRegistry = "registry"
	ruleToken    = "token"
	rulePath     = "path"
)
