// Package common is gitops-engine's of a later release: see go.mod.
package common

import engine "github.com/argoproj/argo-cd/gitops-engine/pkg/sync/common"

type (
	HookType           = engine.HookType
	OperationPhase     = engine.OperationPhase
	ResourceSyncResult = engine.ResourceSyncResult
	ResultCode         = engine.ResultCode
	SyncPhase          = engine.SyncPhase
)

const (
	AnnotationDeletionApproved                = engine.AnnotationDeletionApproved
	AnnotationSyncOptions                     = engine.AnnotationSyncOptions
	DefaultClientSideApplyMigrationManager    = engine.DefaultClientSideApplyMigrationManager
	HookDeletePolicyHookFailed                = engine.HookDeletePolicyHookFailed
	HookDeletePolicyHookSucceeded             = engine.HookDeletePolicyHookSucceeded
	HookTypePostSync                          = engine.HookTypePostSync
	HookTypePreSync                           = engine.HookTypePreSync
	HookTypeSync                              = engine.HookTypeSync
	HookTypeSyncFail                          = engine.HookTypeSyncFail
	OperationError                            = engine.OperationError
	OperationFailed                           = engine.OperationFailed
	OperationRunning                          = engine.OperationRunning
	OperationTerminating                      = engine.OperationTerminating
	ResultCodePruneSkipped                    = engine.ResultCodePruneSkipped
	SyncOptionApplyOutOfSyncOnly              = engine.SyncOptionApplyOutOfSyncOnly
	SyncOptionDisableClientSideApplyMigration = engine.SyncOptionDisableClientSideApplyMigration
	SyncOptionPruneLast                       = engine.SyncOptionPruneLast
	SyncOptionReplace                         = engine.SyncOptionReplace
	SyncOptionServerSideApply                 = engine.SyncOptionServerSideApply
	SyncOptionSkipDryRunOnMissingResource     = engine.SyncOptionSkipDryRunOnMissingResource
	SyncOptionsDisableValidation              = engine.SyncOptionsDisableValidation
)

// What later releases do not name any more.
const (
	SyncOptionDeleteRequireConfirm = "Delete=confirm"
	SyncOptionDisableDeletion      = "Delete=false"
)
