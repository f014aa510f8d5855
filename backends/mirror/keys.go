package mirror

import (
	"slices"
	"strings"
)

// Keys that users and other tools know; they are shared with argocd-agent, so
// that hybrid set-ups and migrations work.
const (
	sourceUIDKey     = "argocd.argoproj.io/source-uid"
	principalUIDKey  = "argocd.argoproj.io/principal-uid"
	ignoreSyncKey    = "argocd-agent.argoproj-labs.io/ignore-sync"
	refreshKey       = "argocd.argoproj.io/refresh"
	hydrateKey       = "argocd.argoproj.io/hydrate"
	skipReconcileKey = "argocd.argoproj.io/skip-reconcile"
	trackingKey      = "argocd.argoproj.io/tracking-id"
	// mismatchPolicyKey is set on the owner's Application, travels with it like any
	// other annotation, and is read from there, so nobody but the owner decides.
	mismatchPolicyKey = "argocd.argoproj.io/source-uid-mismatch-policy"
	lastAppliedKey    = "kubectl.kubernetes.io/last-applied-configuration"
	notifiedPrefix    = "notified.notifications.argoproj.io"
)

// Keys of ours, on copies only: the principal adds no metadata to a managed
// Application on the hub, since an ApplicationSet controller would strip it.
const (
	ownPrefix = "argomesh.io/"
	// recordKey holds a record: what was written, from what.
	recordKey = ownPrefix + "source"
	// hubKey names the hub of a mirror: two may share a cluster.
	hubKey = ownPrefix + "hub"
	// commandsKey holds the ids of the last commands taken, newest last.
	commandsKey = ownPrefix + "commands"
	// refreshedKey and hydratedKey hold the id of the last such request taken.
	refreshedKey = ownPrefix + "refresh"
	hydratedKey  = ownPrefix + "hydrate"
	// resolvedKey holds the id of the last command for whose revision the spoke's
	// controller was asked to look.
	resolvedKey = ownPrefix + "resolved"
	// commandInfo is the name of the operation.info entry that carries a command's id.
	commandInfo = ownPrefix + "command"
	// afterInfo is the name of the operation.info entry that tells which Application
	// of the spoke a command became free to be sent to: the hub's resourceVersion of
	// that moment for a copy, the UID of an original.
	afterInfo = ownPrefix + "after"
	// agentInfo is the name of the operation.info entry that tells to which agent a
	// command was sent, where an Application may go from one agent to another.
	agentInfo = ownPrefix + "agent"
	// beforeInfo is the name of the operation.info entry, in the state of a command
	// that never ran, that tells when the operation started that the spoke showed then.
	beforeInfo = ownPrefix + "before"
	// spokeInfo is the name of the operation.info entry that marks an operation on
	// the hub as one that was born on the spoke; its value is the agent's name.
	spokeInfo = ownPrefix + "spoke"
	// errorCondition is the type of the Application condition that says why a spoke
	// did not take a spec.
	errorCondition = "ArgomeshError"
	// deletionCondition is the type of the one that says of an Application whose copy is
	// gone that its workloads may not be. It stays until the Application goes.
	deletionCondition = "ArgomeshDeletionError"
	// warningCondition is the type of the one that says what of a spec was left out,
	// since the API server that it went to does not know it. By its end Argo CD shows it
	// as a warning.
	warningCondition = "ArgomeshWarning"
	// staleCondition is the type of the one that says that the agent has been away for
	// long, and so what the status of its Application is.
	staleCondition = "ArgomeshStaleWarning"
)

// Finalizers by which Argo CD deletes workloads, and those of its hooks.
const (
	cascadeFinalizer    = "resources-finalizer.argocd.argoproj.io"
	postDeleteFinalizer = "post-delete-finalizer.argocd.argoproj.io"
	preDeleteFinalizer  = "pre-delete-finalizer.argocd.argoproj.io"
)

// isCascade reports whether a finalizer asks for the deletion of workloads, in
// any of the propagation policies that Argo CD knows. It ignores another suffix,
// and so would leave a copy that carries one for ever.
func isCascade(finalizer string) bool {
	switch finalizer {
	case cascadeFinalizer, cascadeFinalizer + "/foreground", cascadeFinalizer + "/background":
		return true
	}
	return false
}

// isArgoCD reports whether a finalizer is one of Argo CD's.
func isArgoCD(finalizer string) bool {
	for _, own := range []string{cascadeFinalizer, postDeleteFinalizer, preDeleteFinalizer} {
		if finalizer == own || strings.HasPrefix(finalizer, own+"/") {
			return true
		}
	}
	return false
}

// isOurs reports whether an annotation is one that only copies have.
func isOurs(key string) bool { return strings.HasPrefix(key, ownPrefix) }

// mirroredKey reports whether a label or annotation key travels at all. What
// does not travel is not reverted either.
func mirroredKey(key string) bool {
	if isOurs(key) || strings.HasPrefix(key, notifiedPrefix) {
		return false
	}
	// A tracking id names an Application of the cluster it was written on; on the
	// other one it could make a namesake prune the copy.
	return !slices.Contains([]string{
		sourceUIDKey, principalUIDKey, refreshKey, hydrateKey, trackingKey, lastAppliedKey, ignoreSyncKey, adoptionPolicyKey,
	}, key)
}
