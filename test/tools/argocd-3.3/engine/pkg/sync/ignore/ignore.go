// Package ignore is gitops-engine's of a later release: see go.mod.
package ignore

import engine "github.com/argoproj/argo-cd/gitops-engine/pkg/sync/ignore"

var (
	Ignore = engine.Ignore
)
