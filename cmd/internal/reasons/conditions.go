package reasons

import "slices"

// conditions explains the reasons of conditions and of Events.
func conditions() []Entry {
	return slices.Concat(ofMapping(), ofRegistration(), ofBounds(), ofHolds())
}

// on is an entry of a condition.
func on(word, where, meaning, cause, cure string) Entry {
	return Entry{Word: word, Kind: Condition, Where: where, Meaning: meaning, Cause: cause, Cure: cure}
}

// ofMapping are the reasons that say of an agent where its Applications and their children are.
func ofMapping() []Entry {
	return []Entry{
		on("AsExpected", "every condition of an Agent", "It is as it should be.", "None.", ""),
		on("Connected", "condition Connected of an Agent", "The agent has a live stream to the principal.", "None.", ""),
		on("NotConnected", "condition Connected of an Agent",
			"The agent has no live stream to the principal. Its spoke goes on with what it has.",
			"The spoke is away, the agent does not run, does not reach the principal, or cannot prove who it is.",
			"On the spoke look at the agent's log, and run `agentctl identity doctor --principal HOST:PORT --principal-id ID --agent NAME` as the agent: it says whether the principal would accept it."),
		on("SettingDiffers", "condition MappingIgnored of an Agent",
			"The setting `mapping.by` of the principal is not the mapping of the hub, and changes nothing.",
			"ConfigMap `argomesh-hub` keeps the mapping in force from the first start on.",
			"Leave the setting out, or make it what is in force; `agentctl hub set-mapping` changes it."),
		on("NamespacesUnread", "condition MappingIgnored of an Agent",
			"`spec.mapping.namespaces` of the Agent counts for nothing.",
			"The hub maps by destination, and the agent is managed.",
			"Remove it from the Agent; `mapping.namespaces` of the principal says where such Applications may be."),
		on("ChildNamespaceTaken", "condition ChildApplications of an Agent", "Child applications of the agent are not shown.",
			"The hub maps by destination, and its namespace of the agent's name is that of its Argo CD, or of an autonomous Agent.",
			"Register the agent under another name; or name another namespace in `spec.mapping.namespaces` of the other Agent; or set `spec.childApplications` to `ignore`."),
		on("NotShownByArgoCD", "condition ChildApplications of an Agent",
			"The hub has mirrors of child applications, and its argocd-server may not show them.",
			"`application.namespaces` in ConfigMap `argocd-cmd-params-cm` does not name the namespace of the agent's name, or `sourceNamespaces` of an AppProject of theirs does not.",
			"Add the namespace where the message says, and restart argocd-server after a change of `application.namespaces`. Where a flag of argocd-server names it already, nothing is wrong."),
		on("ChildrenElsewhere", "condition ChildApplications of an Agent",
			"Some child applications are not shown; the message names the first of them.",
			"The hub maps by destination, and they are not in the namespace of the spoke's Argo CD: two of one name would write over each other.",
			"Move them to the namespace of the spoke's Argo CD, make them Applications of the hub, or set `spec.childApplications` to `ignore`. The condition goes at the latest a quarter of an hour after they are gone from where they were: a spoke does not tell that of what the hub never had."),
		on("NotTaken", "an Event of an Application on the hub",
			"No agent takes the Application, and nothing else deploys it.",
			"It is in the wrong namespace, or its destination is none; the message says which, as condition ArgomeshError of the Application does.",
			"Follow the message; docs/mapping.md says whose an Application is."),
	}
}

// ofRegistration are the reasons that say of an agent whether it may connect, and what is in its way.
func ofRegistration() []Entry {
	return []Entry{
		on("NeverConnected", "conditions Ready and Connected of an Agent", "No agent has ever connected by this Agent.",
			"None runs yet, none reaches the principal, or the one that runs has another SPIFFE ID.",
			"Run an agent with the name, mode and SPIFFE ID of the message. `agentctl agent list --unknown` shows IDs that were refused since no Agent has them."),
		on("RefusedMode", "condition Connected of an Agent", "The agent's connections are refused.",
			"It is configured in another mode than the Agent says.",
			"Set `mode` in the agent's configuration, or delete the Agent and create it again with the other mode."),
		on("RefusedName", "condition Connected of an Agent", "The agent's connections are refused.",
			"It is configured with another name than that of the Agent that has its SPIFFE ID.",
			"Set `name` in the agent's configuration, or give the SPIFFE ID to the other Agent."),
		on("RefusedVersion", "condition Connected of an Agent", "The agent's connections are refused.",
			"Principal and agent speak different protocols.", "Upgrade the older of the two."),
		on("RefusedProtocol", "condition Connected of an Agent", "The agent's connections are refused.",
			"Its first message cannot be understood.",
			"See that the releases of principal and agent are at most one minor release apart."),
		on("RefusedSPIFFEID", "condition Connected of an Agent", "The agent's connections are refused.",
			"It comes with a SPIFFE ID that no Agent has. That it is this agent's is known by its last connection, or by the name at the end of the ID, in a trust domain of its own.",
			"Register its pods with the SPIFFE ID that the Agent names: `agentctl identity register`. If the ID of the message is this agent's,"+
				" give it to the Agent: `agentctl agent set NAME --spiffe-id ID`."),
		on("Suspended", "conditions Ready and Connected of an Agent", "The principal refuses the agent's connections.",
			"`spec.suspended` is set.", "`agentctl agent resume NAME`."),
		on("Deleting", "condition Ready of an Agent", "The Agent is being deleted, and waits for what the message names.",
			"It was deleted. With a cascade it stays until the spoke has confirmed that its Applications are gone.",
			"Bring the spoke back. If it does not come back, `agentctl agent delete NAME --force` lets the Agent go without it."),
		on("SPIFFEIDConflict", "conditions Ready and Conflict of an Agent",
			"A SPIFFE ID of this Agent belongs to an older one, which the message names.",
			"Two Agents have the same ID in `spec.identity.spiffeIDs`.",
			"Give this Agent another: `agentctl agent set NAME --spiffe-id ID`; or delete the older one."),
		on("NamespaceConflict", "conditions Ready and Conflict of an Agent",
			"A namespace that this Agent names belongs to an older one, or to the hub's Argo CD.",
			"Two Agents have the same namespace in `spec.mapping.namespaces`, or one has the name of the other's namespace.",
			"Give this Agent another: `agentctl agent set NAME --mapping SPOKE=HUB`."),
		on("ClusterSecretConflict", "conditions Ready, ClusterSecretReady and ClusterSecretConflict of an Agent",
			"A Secret that is not ours has the name, the cluster name or the server of this agent. Nothing new is sent to it meanwhile.",
			"The cluster was registered with Argo CD by hand, or by another product.",
			"Delete or rename the Secret that the message names."),
		on("ClusterSecretNotReady", "conditions Ready and ClusterSecretReady of an Agent",
			"The cluster Secret of the agent is not yet as it should be.",
			"The principal cannot read or write it; the message has the error.",
			"Mend what the message says: most often the principal's role, an admission policy or a quota."),
	}
}

// ofBounds are the reasons that say of an agent what of it the hub cannot show.
func ofBounds() []Entry {
	return []Entry{
		on("OtherFormat", "condition CacheMismatch of an Agent", "The hub cannot show trees of this agent.",
			"The spoke's Argo CD keeps its cache in another version, or compressed in another way, than the hub's asks for.",
			"Bring both to one release and one `--redis-compress`, and set `redis.cache_version` and `redis.compression` of the agent to what its Argo CD uses."),
		on("Writes", "condition OverBudget of an Agent",
			"What the agent changes waits: it may have no more writes on the hub just now.",
			"The spoke changes more objects a second than its budget admits.",
			"Find on the spoke what changes so often; or raise `spec.limits.writesPerSecond` and `writesBurst` of the Agent."),
		on("Bytes", "condition OverBudget of an Agent",
			"What the agent changes waits: it may write no more bytes to the hub just now.",
			"The spoke changes large objects more often than its budget admits.",
			"Find on the spoke what changes so often; or raise `spec.limits.bytesPerSecond` and `bytesBurst` of the Agent."),
		on("CommonBytes", "condition OverBudget of an Agent",
			"What the agent changes waits: all agents together may write no more bytes to the hub just now.",
			"Many spokes change much at once.",
			"Wait; or raise `limits.bytes_per_second` and `limits.bytes_burst` of the principal, if the hub's etcd has room."),
		on("Objects", "condition OverBudget of an Agent",
			"Some objects of the spoke are not shown on the hub: `status.parked` names them.",
			"They are larger, or more, than a limit admits.",
			"Make them smaller or fewer, or raise the limit that `status.parked` names."),
		on("SharedPrefix", "condition ProjectNames of an Agent",
			"Some AppProjects of an autonomous spoke are not shown on the hub.",
			"The name of another autonomous Agent begins with this one's and a dash, so that their mirrors would have the same names.",
			"Rename the projects that the message names, or register one of the agents under another name."),
	}
}

// ofHolds are the reasons that say of an agent what waits for a person, and the mesh.
func ofHolds() []Entry {
	return []Entry{
		on("HistoryBroken", "condition DeletionsHeld of an Agent", "Deletions wait for a person.",
			"Hub or spoke is not the one that the other knew: restored from a backup, made again or replaced.",
			"Look at them with `agentctl agent get NAME`. If they are right, `agentctl agent accept-deletions NAME`; if not, bring the objects back on the hub."),
		on("TooMany", "condition DeletionsHeld of an Agent", "Deletions wait for a person.",
			"More than 10 objects, and more than 20 % of them, would go at once.",
			"Look at them with `agentctl agent get NAME`. If they are right, `agentctl agent accept-deletions NAME`; if not, bring the objects back on the hub."),
		on("CascadeHeld", "condition DeletionsHeld of an Agent",
			"Deletions of Applications with their workloads wait for a person.",
			"Too many would go at once, or with their namespace or their definition.",
			"`agentctl agent accept-deletions NAME` deletes the workloads, `agentctl agent keep-workloads NAME` lets the Applications go without them."),
		on("Refused", "condition MeshPolicy of an Agent", "The hub's mesh cannot admit this agent.",
			"Its registration cannot be said in the mesh's terms; the message says why.",
			"Change the SPIFFE IDs of the Agent as the message says."),
		on("Failed", "condition MeshPolicy of an Agent", "The principal cannot read or write objects of the mesh.",
			"Its role, or the mesh's admission, does not let it; the message has the error.",
			"Mend what the message says, and see `agentctl mesh verify`."),
		on("Differs", "condition MeshPolicy of an Agent", "Objects of the mesh are not as the registration needs them.",
			"They were changed, or others were put beside them.",
			"`agentctl mesh diff` shows the differences, `agentctl mesh apply` mends our own objects."),
	}
}
