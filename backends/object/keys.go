package object

import (
	"slices"
	"strings"
)

// Keys that users and other tools know; they are shared with argocd-agent, so
// that hybrid set-ups and migrations work.
const (
	SourceUIDKey     = "argocd.argoproj.io/source-uid"
	PrincipalUIDKey  = "argocd.argoproj.io/principal-uid"
	IgnoreSyncKey    = "argocd-agent.argoproj-labs.io/ignore-sync"
	RefreshKey       = "argocd.argoproj.io/refresh"
	HydrateKey       = "argocd.argoproj.io/hydrate"
	SkipReconcileKey = "argocd.argoproj.io/skip-reconcile"
	TrackingKey      = "argocd.argoproj.io/tracking-id"
	// MismatchPolicyKey is set on the owner's Application, travels with it like any
	// other annotation, and is read from there, so no one but the owner decides.
	MismatchPolicyKey = "argocd.argoproj.io/source-uid-mismatch-policy"
	// AdoptionPolicyKey says at an object whether it may be adopted: always or never. It does
	// not travel, since it is the word of the owner of the place.
	AdoptionPolicyKey = "argocd.argoproj.io/adoption-policy"
	LastAppliedKey    = "kubectl.kubernetes.io/last-applied-configuration"
	NotifiedPrefix    = "notified.notifications.argoproj.io"
)

// OwnPrefix begins every label and annotation of ours, on whatever object.
const OwnPrefix = "argomesh.io/"

// Keys of ours, on copies only: the principal adds no metadata to a managed
// Application on the hub, since an ApplicationSet controller would strip it.
const (
	// RecordKey holds a record: what was written, from what.
	RecordKey = OwnPrefix + "source"
	// HubKey names the hub of a mirror: two may share a cluster.
	HubKey = OwnPrefix + "hub"
	// CommandsKey holds the ids of the last commands taken, newest last.
	CommandsKey = OwnPrefix + "commands"
	// RefreshedKey and HydratedKey hold the id of the last such request taken.
	RefreshedKey = OwnPrefix + "refresh"
	HydratedKey  = OwnPrefix + "hydrate"
	// ResolvedKey holds the id of the last command for whose revision the spoke's
	// controller was asked to look.
	ResolvedKey = OwnPrefix + "resolved"
	// CommandInfo is the name of the operation.info entry that carries a command's id.
	CommandInfo = OwnPrefix + "command"
	// AfterInfo is the name of the operation.info entry that tells which Application
	// of the spoke a command became free to be sent to: the hub's resourceVersion of
	// that moment for a copy, the UID of an original.
	AfterInfo = OwnPrefix + "after"
	// AgentInfo is the name of the operation.info entry that tells to which agent a
	// command was sent, where an Application may go from one agent to another.
	AgentInfo = OwnPrefix + "agent"
	// BeforeInfo is the name of the operation.info entry, in the state of a command
	// that never ran, that tells when the operation started that the spoke showed then.
	BeforeInfo = OwnPrefix + "before"
	// SpokeInfo is the name of the operation.info entry that marks an operation on
	// the hub as one that was born on the spoke; its value is the agent's name.
	SpokeInfo = OwnPrefix + "spoke"
	// ReturnedKey is the annotation that tells the owner of an object that it is his again,
	// and as what. It stays until he removes it.
	ReturnedKey = OwnPrefix + "returned"
	// ErrorCondition is the type of the Application condition that says why a spoke
	// did not take a spec.
	ErrorCondition = "ArgomeshError"
	// DeletionCondition is the type of the one that says of an Application whose copy is
	// gone that its workloads may not be. It stays until the Application goes.
	DeletionCondition = "ArgomeshDeletionError"
	// WarningCondition is the type of the one that says what of a spec was left out,
	// since the API server that it went to does not know it. By its end Argo CD shows it
	// as a warning.
	WarningCondition = "ArgomeshWarning"
	// StaleCondition is the type of the one that says that the agent has been away for
	// long, and so what the status of its Application is.
	StaleCondition = "ArgomeshStaleWarning"
	// ReturnedCondition is the type of the one that tells the owner of an Application that it
	// is his again, and as what. It stays until he removes it.
	ReturnedCondition = "ArgomeshReturned"
)

// Finalizers by which Argo CD deletes workloads, and those of its hooks.
const (
	CascadeFinalizer    = "resources-finalizer.argocd.argoproj.io"
	PostDeleteFinalizer = "post-delete-finalizer.argocd.argoproj.io"
	PreDeleteFinalizer  = "pre-delete-finalizer.argocd.argoproj.io"
)

// IsCascade reports whether a finalizer asks for the deletion of workloads, in
// any of the propagation policies that Argo CD knows. It ignores another suffix,
// and so would leave a copy that carries one for ever.
func IsCascade(finalizer string) bool {
	switch finalizer {
	case CascadeFinalizer, CascadeFinalizer + "/foreground", CascadeFinalizer + "/background":
		return true
	}
	return false
}

// IsArgoCD reports whether a finalizer is one of Argo CD's.
func IsArgoCD(finalizer string) bool {
	for _, own := range []string{CascadeFinalizer, PostDeleteFinalizer, PreDeleteFinalizer} {
		if finalizer == own || strings.HasPrefix(finalizer, own+"/") {
			return true
		}
	}
	return false
}

// IsOurs reports whether an annotation is one that only copies have.
func IsOurs(key string) bool { return strings.HasPrefix(key, OwnPrefix) }

// mirroredKey reports whether a label or annotation key travels at all. What
// does not travel is not reverted either.
func mirroredKey(key string) bool {
	if IsOurs(key) || strings.HasPrefix(key, NotifiedPrefix) {
		return false
	}
	// A tracking id names an Application of the cluster it was written on; on the
	// other one it could make a namesake prune the copy.
	return !slices.Contains([]string{
		SourceUIDKey, PrincipalUIDKey, RefreshKey, HydrateKey, TrackingKey, LastAppliedKey, IgnoreSyncKey, AdoptionPolicyKey,
	}, key)
}
