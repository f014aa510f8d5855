package reasons

import "slices"

// checks explains what `agentctl check` finds that no condition says.
func checks() []Entry {
	return slices.Concat(ofCluster(), ofInstallation(), ofIdentity(), ofPath(), ofAgreement())
}

// byCheck is an entry of agentctl check.
func byCheck(word, meaning, cause, cure string) Entry {
	return Entry{Word: word, Kind: Check, Where: "agentctl check", Meaning: meaning, Cause: cause, Cure: cure}
}

// ofCluster are entries of what a cluster has to have, Argo CD and SPIRE among it.
func ofCluster() []Entry {
	return []Entry{
		byCheck("KubernetesTooOld", "The API server is of a release that is not supported.",
			"It is older than 1.30.", "Upgrade Kubernetes."),
		byCheck("NamespaceMissing", "The namespace of Argo CD and of our programs is not there.",
			"It has another name, or Argo CD is not installed yet.",
			"Install Argo CD there first, have `--with argocd` bring it, or name its namespace with `-n`."),
		byCheck("ArgoCDMissing", "The API server knows no Applications.",
			"Argo CD is not installed there, or not its definitions.", "Install Argo CD, or have `--with argocd` of an install bring it; `docs/install.md` says which release."),
		byCheck("RightsMissing", "RBAC does not allow what an install needs, or what our program does.",
			"Before an install it is this user who lacks rights. Of what is installed it is a service account: its roles or their bindings were"+
				" removed or changed, or were never made, as by `rbac.create: false`. Of each rule of a role some rights are asked for.",
			"Ask an administrator of the cluster for them, or choose another `--context` or `--user`. Of a service account install again, or"+
				" apply the roles again; `agentctl agent role` prints those of an agent."),
		byCheck("ServerMissing", "The hub has no argocd-server.",
			"It is not installed, is in another namespace, or runs outside of this cluster.",
			"Install it there, or name its namespace with `-n`; where it runs outside of this cluster nothing is wrong."),
		byCheck("ControllerMissing", "Nothing syncs on the spoke.",
			"Argo CD's application controller is not installed in that namespace.", "Install it, or name its namespace with `-n`."),
		byCheck("ArgoCDTooOld", "Argo CD is of a release that is not supported.",
			"It is older than 3.5 on a hub, or than 3.2 on a spoke.", "Upgrade Argo CD."),
		byCheck("CSIDriverMissing", "Pods get no Workload API.",
			"SPIFFE's CSI driver is not registered in the cluster.",
			"Install it with SPIRE, or have `--with spire` of an install bring both; or set `identity.source` of the chart to `spire-hostpath`."),
		byCheck("ClocksApart", "Clocks differ by more than ten seconds.",
			"No time service runs, or it is not reached. SVIDs and tokens are valid from and until a time.",
			"Have both clocks follow one time service."),
		byCheck("SPIREMissing", "The cluster has no resources of spire-controller-manager.",
			"It is not installed, or registers in another cluster.",
			"Install it with SPIRE; or register the pods with the SPIRE server itself, by `agentctl identity register --spire-server`."),
		byCheck("WrongClass", "No spire-controller-manager looks after our registration.",
			"It is of another class than the manager, as that says in its configuration, or else than the registrations that are"+
				" there. A manager with a class ignores all others.",
			"Register again with the `--class-name` that the manager has."),
		byCheck("NotRegistered", "Our pods may have no identity.",
			"No ClusterSPIFFEID names their service account. One that selects all pods, or an entry of the SPIRE server, may do.",
			"`agentctl hub install --trust-domain NAME`, `agentctl spoke install NAME --trust-domain NAME`, or `agentctl identity register`."),
		byCheck("DNSNameMissing", "Argo CD cannot verify the certificate of the resource proxy.",
			"The registration of the principal has no DNS name of its Service.",
			"Register it with `--dns argomesh-principal.NAMESPACE.svc`."),
		byCheck("NamespacesNotWatched", "The hub's Argo CD does not show the Applications of an autonomous agent.",
			"argocd-server takes Applications of the namespaces that its flag `--application-namespaces` names, or `application.namespaces`"+
				" in ConfigMap `argocd-cmd-params-cm`, and the namespace of the agent is not among them.",
			"Let its service account list Applications of all namespaces (`examples/k8s-rbac` of Argo CD), and run `agentctl hub install` again,"+
				" which gives it the flag where neither says anything; else add the namespace there, and restart argocd-server."),
		byCheck("TerminalOff", "The hub's Argo CD offers no terminal, although an Agent has live access with `exec`.",
			"Argo CD has a switch of its own, `exec.enabled` in ConfigMap `argocd-cm`, which is off unless someone sets it.",
			"`agentctl hub install --terminal`; or set `exec.enabled: \"true\"` in that ConfigMap, by what manages it. Whom Argo CD"+
				" then lets open one its own RBAC says: `exec, create`."),
		byCheck("NotFederated", "SVIDs of the other side are not trusted.",
			"Hub and spoke have trust domains of their own, and this side has not the bundle of the other.",
			"`agentctl identity federate`, on both sides."),
	}
}

// ofInstallation are entries of what was installed, and how it runs.
func ofInstallation() []Entry {
	return []Entry{
		byCheck("NotInstalled", "Our program is not there.",
			"The chart was not installed in that namespace, or was removed.", "Install it, or name its namespace with `-n`."),
		byCheck("OlderChart", "The release is of another chart than this agentctl has.",
			"One of the two was upgraded.", "Where the release is older, install again to upgrade, the hub first. Where it is newer, use the agentctl of that release."),
		byCheck("ReleasePending", "Helm has an operation under way, or it was ended in the middle.",
			"An install or upgrade was killed, or runs now.", "Run the install again, which finishes it."),
		byCheck("ObjectsChanged", "What the chart installed is not as it says.",
			"Someone deleted or edited it. Rights of the program and NetworkPolicies are among it.",
			"Install again, which brings it back."),
		byCheck("PodNotReady", "A pod of ours does not get ready.",
			"Its program ends, or is not ready; the message has the reason.",
			"Look at its log (`kubectl logs`), and mend what it says: a value by an install with `--set`, which replaces its pods."),
		byCheck("ImageNotPulled", "The image of a pod cannot be had.",
			"The registry or its folder is named wrong, cannot be reached, or wants credentials.",
			"Set `image` of the chart, or `imagePullSecrets`; `make images REGISTRY=...` makes ours and pushes them."),
		byCheck("PodNotScheduled", "No node takes a pod.",
			"None has room, or its taints are not tolerated; the message says which.",
			"Make room, label a node as `nodeSelector` of the chart says (`kubectl label node`), or set that, `tolerations` or `resources`."),
		byCheck("VolumeNotMounted", "A pod waits for a volume.",
			"The CSI driver does not run on its node, or a Secret that the values name is not there; the message says which.",
			"Install the driver on that node, or make the Secret."),
		byCheck("ProgramNotReady", "A program says that something is wrong with it.",
			"The message has its own words, from `/readyz`.", "Mend what it says; its log has more."),
		byCheck("SidecarWithoutSPIRE", "A sidecar has an identity that no one of ours knows.",
			"It was injected by the usual template of Istio, without `spire`.",
			"Set `identity.source: istio` of the chart, and have Istio know the template `spire`: `agentctl mesh render istio-values`."),
		byCheck("HeaderMissing", "Agents that a proxy lets in are refused by the principal, which does not learn who they are.",
			"The principal has method `header`, and a gateway or sidecar does not pass `x-forwarded-client-cert` on, or takes it out.",
			"Have the gateway forward it (`forwardClientCertDetails` of Istio's `gatewayTopology`); `agentctl mesh render istio-values` has the settings."+
				" Such calls are counted until the principal is restarted."),
		byCheck("ConnectionCut", "The connection of an agent to the principal ends again and again.",
			"Something between them ends it: a load balancer or proxy that idles out in less than 15 s, that bounds how long a connection"+
				" or a request may last, or that is restarted.",
			"Raise its idle timeout to 60 s or more, and have it bound neither requests nor connections in time; the log of the agent has each end."+
				" Ends are counted until the agent is restarted."),
		byCheck("MeshPermissive", "Who has no certificate of the mesh is let in.",
			"A PeerAuthentication says so, for the namespace or for the mesh.",
			"Set its mode to STRICT; `agentctl mesh apply` makes ours."),
		byCheck("LoadBalancerPending", "Agents have no address to connect to.",
			"The load balancer of the Service has none yet: the cluster has no controller for it, or a quota is used up.",
			"Look at the events of the Service; or set `service.type` to NodePort, and name an address that leads there."),
		byCheck("ServiceMissing", "Agents cannot reach the principal.", "Its Service was deleted.",
			"Install again, which brings it back."),
		byCheck("RedisNotOurs", "Argo CD shows no trees of spokes.",
			"argocd-server asks its own Redis alone: it was never told of the Redis proxy, or an upgrade of Argo CD has put it back.",
			"`agentctl hub install`, which tells it again; where another tool manages argocd-server, give it `--redis=argomesh-principal:6379` there."),
		byCheck("RedisProxyOff", "Argo CD shows no trees of spokes.", "`config.redis_proxy.listen` of the principal is not set.",
			"`agentctl hub install`, with `--force-conflicts` where someone has changed its ConfigMap; or set `config.redis` and"+
				" `config.redis_proxy` by hand."),
		byCheck("RedisShut", "Our pods cannot reach Argo CD's Redis.",
			"Its NetworkPolicy admits Argo CD's pods alone.", "Set `networkPolicy.redisIngress` of the chart to `auto` or `always`."),
	}
}

// ofIdentity are entries of the SVIDs and bundles that our programs hold.
func ofIdentity() []Entry {
	return []Entry{
		byCheck("SVIDExpired", "A program cannot prove who it is.",
			"Its SVID has expired, and the Workload API gave it no newer one.",
			"See that the SPIRE agent of its node runs and reaches its server, and look at the clock of the node."),
		byCheck("SVIDExpiring", "A program will soon be unable to prove who it is.",
			"Less than a third of the life of its SVID is left, and SPIRE should have replaced it at half of that.",
			"See that the SPIRE agent of its node runs and reaches its server; its log has more."),
		byCheck("SVIDInvalid", "Others do not accept the SVID of a program.",
			"It does not stand up to the bundle of its own trust domain, is valid only later, or its SPIFFE ID is none of a workload; the message says which.",
			"Restart the SPIRE agent, set the clock of the node, or register another SPIFFE ID."),
		byCheck("BundleMissing", "A program trusts no one of a trust domain that it has to do with.",
			"The Workload API gives it no bundle of that trust domain, or one without keys: the SPIRE servers are not federated, or the entry of the program does not federate with it.",
			"`agentctl identity federate`, on both sides, and register the program with `--federates-with`."),
		byCheck("BundleExpired", "A program trusts no one of a trust domain any more.",
			"All keys in the bundle of that trust domain have expired: it has newer ones that were not fetched, or its SPIRE server made none.",
			"Federate with it again, the first bundle by hand (`agentctl identity federate --bundle`); of the own trust domain look at the SPIRE server."),
		byCheck("JWTKeysMissing", "A program does not trust JWT-SVIDs of a trust domain.",
			"The bundle of that trust domain has no JWT keys: it was taken as certificates alone.",
			"Take its bundle in the SPIFFE format, which has them."),
	}
}

// ofPath are entries of the way from a spoke to the principal.
func ofPath() []Entry {
	return []Entry{
		byCheck("PrincipalUnreachable", "No connection to the principal comes about.",
			"The name is not resolved, nothing listens at the address, or a firewall, a proxy or a NetworkPolicy is in the way; the message says how far it came.",
			"Open the way for TCP from the spoke to that address; name a proxy by `HTTPS_PROXY` in `env` of the agent's chart."),
		byCheck("NoTLS", "What answers does not speak TLS.",
			"The address or port is another's, or a load balancer takes plain text.",
			"Name the port of the principal's stream, and have a load balancer pass TCP through."),
		byCheck("TLSEnded", "Something on the way terminates TLS, so neither side can prove its SVID to the other.",
			"A proxy that inspects traffic, or a load balancer or gateway with a certificate of its own.",
			"Have it pass TCP through, without terminating TLS; or where a gateway is to terminate it, set `principal.method` of the agent to `spiffe-jwt` or `header`, with `principal.gateway`."),
		byCheck("NoGRPC", "Agents cannot connect, since gRPC needs HTTP/2.",
			"A proxy or load balancer on the way speaks HTTP/1.1 alone.",
			"Have it pass TCP through, or switch HTTP/2 on there, to clients and to the principal."),
		byCheck("OtherPrincipal", "Another workload answers than the agent would accept.",
			"The address is that of another hub or gateway, or the SPIFFE ID is named wrong.",
			"Set `principal.address` and `principal.spiffe_ids` of the agent to those of one and the same hub."),
	}
}

// ofAgreement are entries of what hub and spoke have to agree on.
func ofAgreement() []Entry {
	return []Entry{
		byCheck("LiveAccessOff", "Logs, events and live manifests of a spoke do not work.",
			"Live access is off, on the hub, on the spoke, or on both. Both decide.",
			"`agentctl agent set NAME --access read` on the hub, and `config.access.enabled` on the spoke."),
		byCheck("NoProjectAdmits", "An Application is not sent to its agent.",
			"Its AppProject does not admit its namespace, destination or source, or is not there.",
			"Change that AppProject, or name another in `spec.project`."),
		byCheck("PolicyRefuses", "The policy of the spoke does not admit what the hub has there.",
			"The policy was narrowed, or is about to be in force, since the object came. It stays as it is, and its next change or sync is refused.",
			"Allow it in the agent's policy, or change the object on the hub."),
		byCheck("Parked", "Objects of an agent are not applied.",
			"The principal says how many, and not which: its status is older than this release.",
			"Upgrade the principal, which then names them."),
		byCheck("AgentMissing", "The hub has no Agent of the agent's name.",
			"It was not registered, or is configured with another name.", "`agentctl agent create`, or set `config.name` of its chart."),
		byCheck("OtherSPIFFEID", "The hub does not know the agent by the SPIFFE ID that it has.",
			"Its pods are registered with SPIRE under another ID than the Agent names.",
			"Give the Agent that ID: `agentctl agent set NAME --spiffe-id ID`; or register the pods with the other."),
		byCheck("DefaultNotShared", "Applications of AppProject `default` are refused by the spoke.",
			"The project is shared on one side alone.",
			"Set `projects.share_default` of the principal and `policy.adopt: [appproject/default]` of the agent, or use another project."),
	}
}
