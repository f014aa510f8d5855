package reasons

// ruleOf explains a rule of live access.
func ruleOf(word, meaning, cause, cure string) Entry {
	return Entry{
		Word: word, Kind: Rule, Where: "refusals of live access, and `rule` in the audit", Meaning: meaning, Cause: cause,
		Cure: cure,
	}
}

// switchOff explains a rule that refuses what a switch of both sides is off for.
func switchOff(word, what, flag, key string) Entry {
	return ruleOf(word, what+" by the hub is refused.",
		"The switch is off on the side that the message names. Both sides have to allow a call.",
		"On the hub `agentctl agent set NAME --access "+flag+"`; on the spoke `access."+key+"` of the agent's configuration.")
}

// rules explains the rules of live access that are not in a configuration.
func rules() []Entry {
	return []Entry{
		ruleOf("enabled", "Live access to the spoke is off.",
			"`spec.access.enabled` of the Agent, or `access.enabled` of the agent's configuration, is not true; the message says which.",
			"On the hub `agentctl agent set NAME --access read`; on the spoke `access.enabled: true`, with the chart's role."),
		ruleOf("discovery", "The call asks for versions, discovery, OpenAPI or health, which are allowed with live access.",
			"None.", ""),
		ruleOf("non-resource-paths", "The path is neither an object nor one of version, discovery, OpenAPI and health.",
			"A client asks for metrics, logs of the node or the like.", "Ask the spoke's API server itself."),
		ruleOf("impersonation", "The call asks for the identity of another user.",
			"The user is not listed, or UID, groups or extra fields are asked for too.",
			"Add the exact user to `spec.access.impersonate` of the Agent and to `access.impersonate` of the agent, or call without impersonation."),
		ruleOf("secrets", "Access to Secrets by the hub is refused.",
			"The switch is off on the side that the message names, or masked, by which Secrets are read and neither watched nor changed; or it is masked on the hub, and the agent is of a release that does not mask. Both sides have to allow a call.",
			"On the hub `agentctl agent set NAME --access read,masked-secrets`, or `read,secrets` for the values too; on the spoke `access.secrets: masked` or `true` in the agent's configuration. An agent that does not mask: upgrade it."),
		switchOff("tokens", "Access to what hands out or tests credentials", "read,tokens", "tokens"),
		switchOff("proxy", "Access through a proxy of pods, services and nodes", "read,proxy", "proxy"),
		switchOff("exec", "Exec, attach, port-forward or another upgraded connection", "read,exec", "exec"),
		switchOff("ephemeral-containers", "Adding containers to a running pod", "read,ephemeral-containers",
			"ephemeral_containers"),
		switchOff("nodes", "Access to nodes", "read,nodes", "nodes"),
		switchOff("writes", "Writing", "read,writes", "writes"),
		ruleOf("hub-controller", "An application controller of the hub writes to a spoke.",
			"The hub's Argo CD has an application controller that does not skip the cluster: the spoke's own controller is the one that writes.",
			"Let Argo CD of the hub be of a release that knows `argocd.argoproj.io/skip-reconcile`, and leave that annotation on the cluster Secret."),
		ruleOf("tracked-only", "The call is about an object that no Application tracks.",
			"`trackedOnly` of the Agent, or `tracked_only` of the agent, is on.",
			"Name an object that an Application tracks, or switch it off on both sides."),
		ruleOf("deny-by-default", "No rule covers the call.",
			"Its kind, namespace or name is in none of the rules; without rules the common kinds alone are.",
			"Add a rule to `spec.access.rules` of the Agent and to `access.rules` of the agent."),
		ruleOf("message", "The call is not understood, or its form is not passed on.",
			"A client, or a proxy before us, writes HTTP that two readers could read in two ways, another upgrade or method than Kubernetes', or asks for masked Secrets in a form that cannot be masked, such as a watch; the message says which.",
			"Call with kubectl or another client of Kubernetes, over HTTP/1.1 or HTTP/2, with the path as its client writes it; masked Secrets by get or list."),
		ruleOf("path", "The call names no agent.",
			"Its path does not begin with `/agents/NAME/`, or the name is none that an agent can have.",
			"Take the server from the cluster Secret of the agent as it stands: `https://…/agents/NAME`."),
		ruleOf("concurrency", "Too many calls are under way.",
			"The agent, or all of them together, has as many live calls as are allowed: watches, logs and terminals count for as long as they are open.",
			"Close what is open and try again; or raise `resource_proxy.max_agent_calls` or `resource_proxy.max_calls` of the principal, or `live_access.max_calls` of the agent: the message says whether the hub or the spoke refuses."),
		ruleOf("rate", "The hub begins too many calls a second.",
			"All callers of the hub together begin more calls at this spoke than its owner lets them, after a burst of ten times as many: a script without a pause, or a hub that another controls.",
			"Wait, as clients of Kubernetes do by themselves; or raise `live_access.calls_per_second` of the agent."),
		ruleOf("registry", "The agent is not known.",
			"It is not registered, suspended or being deleted; or the principal has not read the Agents yet.",
			"`agentctl agent get NAME`; `agentctl agent resume NAME` if it is suspended."),
		ruleOf("token", "The call has no token that counts for this agent.",
			"The token is missing, expired, revoked or for another agent; or the principal does not know its keys yet.",
			"Read the cluster Secret again: the principal keeps a valid token there."),
	}
}
