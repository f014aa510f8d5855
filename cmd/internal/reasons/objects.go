package reasons

// parked explains why an object is not applied.
func parked() []Entry {
	on := func(word, meaning, cause, cure string) Entry {
		return Entry{Word: word, Kind: Parked, Where: "status.parked of an Agent", Meaning: meaning, Cause: cause, Cure: cure}
	}
	return []Entry{
		on("Invalid", "The other side cannot store the object.",
			"Its API server refuses it: a field that its definition does not allow, or an admission policy. The message has its words.", "Correct the object where it is written; it is tried again when it changes."),
		on("NotOwned", "An object that Argomesh did not make is in the way.",
			"An object of the same kind and name is where this one is to be.",
			"Rename or delete that object; or let it be adopted: `policy.adopt` of the agent, or `agentctl agent set NAME --adopt KIND/NAME` for mirrors of an autonomous agent. Of a mirror that was released, remove its annotation `argomesh.io/released`."),
		on("Unavailable", "The other side's API server did not answer as it should.",
			"It is overloaded, restarting or away, or does not let us write.",
			"It is tried again by itself. If it stays, look at the log of the agent, or of the principal."),
		on("Held", "The deletion of the object waits for a person.",
			"Deletions are held: see condition DeletionsHeld of the Agent.",
			"`agentctl agent get NAME` shows what is held and what lets it go on."),
		on("Outdated", "The other side has a later state of the object.", "The hub was restored, or a cache lags behind.",
			"It is tried again by itself. If it stays, see condition DeletionsHeld."),
		on("Unsupported", "The other side's release does not know this.", "Agent and principal are of different releases.",
			"Upgrade the older of the two."),
		on("Denied", "The spoke's owner does not allow the object.",
			"`policy` of the agent, which the message names, refuses it.",
			"Change the object, or let the spoke's owner widen `policy`; `agentctl identity doctor --agent-config FILE` lists all that is refused."),
		on("Contested", "Another writer on the other side changes back what is applied.",
			"Two writers have the same fields; the message names those.",
			"End the other writer: most often another Argo CD Application, a policy engine or a mutating webhook."),
		on("NotCascaded", "The copy of an Application is gone, and its workloads may not be.",
			"The finalizer was removed on the spoke, or the copy went while the agent was away.",
			"Look on the spoke for what is left, and delete it there; then remove the Application's finalizer on the hub."),
		on("Kept", "The spoke keeps an AppProject that it should not have any more.",
			"An Application on the spoke names it, of which the message says what it does. The project permits nothing there, unless that Application is being deleted.", "Delete the Application, or let its project on the hub admit it; the project goes then."),
		on("OverLimit", "The object is too large, or one too many.", "A limit of this side, which the message names.",
			"Make it smaller, or raise the limit in `spec.limits` of the Agent."),
		on("Unknown", "The other side refuses the object for a reason that this release does not know.",
			"It is of a newer release.", "Upgrade this side; the message says the rest."),
	}
}

// applications explains the conditions that Applications have from us.
func applications() []Entry {
	on := func(word, meaning, cause, cure string) Entry {
		return Entry{Word: word, Kind: Application, Where: "conditions of an Application on the hub", Meaning: meaning,
			Cause: cause, Cure: cure}
	}
	return []Entry{
		on("ArgomeshError", "The Application, as it is now, is not on its spoke.",
			"The message says which side did not take it, and why: destination, project, the spoke's policy, a conflict.",
			"Follow the message. It goes when the Application was applied."),
		on("ArgomeshDeletionError", "The Application's copy is gone, and its workloads may not be.",
			"The copy, or its finalizer, was removed on the spoke.",
			"Look on the spoke for what is left; then remove the finalizer on the hub."),
		on("ArgomeshWarning", "The Application runs on its spoke without some of its fields.",
			"The Argo CD there does not know them, being of an older release.",
			"Upgrade the spoke's Argo CD, or leave the fields out."),
		on("ArgomeshStaleWarning", "The status of the Application is what its spoke said last, and may be no longer so.",
			"Its agent has been away for a minute or longer, is suspended, or has never connected; the message says since when.",
			"`agentctl agent get NAME` says why it is away. The condition goes when the agent is back. What is changed or synced meanwhile happens then."),
		on("ArgomeshStatusWarning", "The status is shown without its list of resources.",
			"It would be larger than the hub may store.",
			"Split the Application, or raise `spec.limits.applicationBytes` of the Agent."),
		on("ArgomeshReturned", "An object that a mirror had taken over is its owner's again.",
			"The mirror went: its original, its Agent or `spec.adopt` did.",
			"Look at the object, and remove the condition with the annotation `argomesh.io/returned`."),
	}
}

// redisErrors explains the errors of the Redis proxy.
func redisErrors() []Entry {
	on := func(word, meaning, cause, cure string) Entry {
		return Entry{Word: word, Kind: Redis, Where: "errors of the Redis proxy, as Argo CD logs and shows them",
			Meaning: meaning, Cause: cause, Cure: cure}
	}
	return []Entry{
		on("AGENTAWAY", "The spoke's cache cannot be asked, and no last value is kept.",
			"The agent is not connected, or its Redis does not answer.",
			"`agentctl agent get NAME`; the agent's log says what is wrong with its Redis."),
		on("AGENTFORMAT", "The spoke's Argo CD keeps its cache in another way than the hub's asks for.",
			"Another release, or another compression.",
			"Bring both to one release and one `--redis-compress`, and set `redis.cache_version` and `redis.compression` of the agent."),
		on("AGENTREFUSED", "The agent is not asked, or does not answer to this.",
			"It is suspended or being deleted, or does not serve its Redis.",
			"Resume it, or set `redis_proxy.enabled` of the agent."),
		on("AGENTCOMMAND", "The command is none for keys of agents.",
			"A client of Redis that is not Argo CD, or keys of two agents in one command.",
			"Ask one agent's keys at a time, with the commands that docs/redis.md lists."),
	}
}
