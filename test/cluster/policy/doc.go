// Package policy enforces NetworkPolicies in the cluster tests, since their network plugin does not.
// [Ruleset] makes the rules of nftables out of NetworkPolicies, Pods and Namespaces. [Enforcer] watches
// those and has nft replace its table in one transaction whenever the rules change.
//
// The rules follow the documentation of the API (k8s.io/api/networking/v1, types.go):
//
//   - A pod is isolated in a direction once a policy that has this direction selects it. What one of
//     these policies allows is allowed. A connection between two pods needs both: egress of the one and
//     ingress of the other.
//   - The pod's own node always reaches it, as kubelet's probes have to: what the node sends itself passes
//     no chain of ours. The API names no such exception for egress, and network plugins differ: here what a
//     pod sends to its node is filtered too, for there the API server of the tests listens.
//   - A pod cannot lock itself out: what it sends to itself by a Service is allowed.
//   - Answers are allowed, and so is what goes on in a connection that was allowed when it began.
//   - Pods of the host's network are the node. No policy selects them, as a pod or as a peer.
//
// All is matched as the pods see it, after kube-proxy has put a pod's address in place of the Service's:
// the hooks forward and input, at priority filter, come after destination NAT and before source NAT.
// Between two pods of a node the hook forward sees only what is routed. The plugin ptp routes it; a bridge
// would not.
//
// A pod is isolated as soon as the API server knows its address, shortly after its sandbox has it: what it
// sends before that passes.
package policy
