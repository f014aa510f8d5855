// Package hook is gitops-engine's of a later release: see go.mod.
package hook

import engine "github.com/argoproj/argo-cd/gitops-engine/pkg/sync/hook"

var (
	DeletePolicies = engine.DeletePolicies
	IsHook         = engine.IsHook
	Skip           = engine.Skip
	Types          = engine.Types
)
