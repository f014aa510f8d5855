// Package scheme is gitops-engine's of a later release: see go.mod.
package scheme

import engine "github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube/scheme"

var (
	ResolveParseableType = engine.ResolveParseableType
)
