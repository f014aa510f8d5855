// Package sync is gitops-engine's of a later release: see go.mod.
package sync

import engine "github.com/argoproj/argo-cd/gitops-engine/pkg/sync"

type (
	ReconciliationResult = engine.ReconciliationResult
	SyncOpt              = engine.SyncOpt
)

var (
	NewSyncContext                  = engine.NewSyncContext
	Reconcile                       = engine.Reconcile
	WithClientSideApplyMigration    = engine.WithClientSideApplyMigration
	WithHealthOverride              = engine.WithHealthOverride
	WithInitialState                = engine.WithInitialState
	WithLogr                        = engine.WithLogr
	WithManifestValidation          = engine.WithManifestValidation
	WithNamespaceModifier           = engine.WithNamespaceModifier
	WithOperationSettings           = engine.WithOperationSettings
	WithPermissionValidator         = engine.WithPermissionValidator
	WithPruneConfirmed              = engine.WithPruneConfirmed
	WithPruneLast                   = engine.WithPruneLast
	WithPrunePropagationPolicy      = engine.WithPrunePropagationPolicy
	WithReplace                     = engine.WithReplace
	WithResourceModificationChecker = engine.WithResourceModificationChecker
	WithResourcesFilter             = engine.WithResourcesFilter
	WithServerSideApply             = engine.WithServerSideApply
	WithServerSideApplyManager      = engine.WithServerSideApplyManager
	WithSkipDryRunOnMissingResource = engine.WithSkipDryRunOnMissingResource
	WithSyncWaveHook                = engine.WithSyncWaveHook
)
