// Package resource is gitops-engine's of a later release: see go.mod.
package resource

import engine "github.com/argoproj/argo-cd/gitops-engine/pkg/sync/resource"

var (
	HasAnnotationOption = engine.HasAnnotationOption
)
