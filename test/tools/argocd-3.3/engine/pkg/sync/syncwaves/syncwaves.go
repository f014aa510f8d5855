// Package syncwaves is gitops-engine's of a later release: see go.mod.
package syncwaves

import engine "github.com/argoproj/argo-cd/gitops-engine/pkg/sync/syncwaves"

var (
	Wave = engine.Wave
)
