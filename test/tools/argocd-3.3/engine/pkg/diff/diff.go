// Package diff is gitops-engine's of a later release: see go.mod.
package diff

import engine "github.com/argoproj/argo-cd/gitops-engine/pkg/diff"

type (
	DiffResult          = engine.DiffResult
	DiffResultList      = engine.DiffResultList
	KubeApplier         = engine.KubeApplier
	Normalizer          = engine.Normalizer
	Option              = engine.Option
	ServerSideDryRunner = engine.ServerSideDryRunner
)

var (
	CreateTwoWayMergePatch    = engine.CreateTwoWayMergePatch
	Diff                      = engine.Diff
	DiffArray                 = engine.DiffArray
	HideSecretData            = engine.HideSecretData
	IgnoreAggregatedRoles     = engine.IgnoreAggregatedRoles
	NewK8sServerSideDryRunner = engine.NewK8sServerSideDryRunner
	WithGVKParser             = engine.WithGVKParser
	WithIgnoreMutationWebhook = engine.WithIgnoreMutationWebhook
	WithLogr                  = engine.WithLogr
	WithManager               = engine.WithManager
	WithNormalizer            = engine.WithNormalizer
	WithServerSideDiff        = engine.WithServerSideDiff
	WithServerSideDryRunner   = engine.WithServerSideDryRunner
	WithStructuredMergeDiff   = engine.WithStructuredMergeDiff
)
