package reasons

// requests explains why a person gets no token of an agent.
func requests() []Entry {
	on := func(word, meaning, cause, cure string) Entry {
		return Entry{Word: word, Kind: Request, Where: "status.reason of an AccessRequest, and `agentctl kubeconfig`", Meaning: meaning,
			Cause: cause, Cure: cure}
	}
	return []Entry{
		on("NotGuarded", "No one vouches for who made the request.",
			"The ValidatingAdmissionPolicy `argomesh-access-requests.<namespace>` or its binding is missing, was changed, or is some seconds old. The message says which.",
			"Install the chart of the principal with `admission.accessRequests`, on Kubernetes 1.30 or newer, and ask again."),
		on("NotAllowed", "The hub's RBAC does not let the person reach that agent's spoke.",
			"She may not create `agents/access` of that Agent in the namespace of Argo CD.",
			"Give her a Role with apiGroups [argomesh.io], resources [agents/access], resourceNames [NAME], verbs [create]."),
		on("NoSuchAgent", "No agent of that name can be reached.",
			"It is not registered, it is suspended, or it is being deleted. The message says which.",
			"`agentctl agent list` shows the agents; `agentctl agent resume NAME` ends a suspension."),
		on("UnusableRequest", "The request cannot be answered as it is.",
			"Its public key is not an X25519 key, or the name of the user has more than 512 bytes.",
			"Ask with `agentctl kubeconfig`, by a user with a shorter name."),
	}
}
