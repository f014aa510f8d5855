// Package text is gitops-engine's of a later release: see go.mod.
package text

import engine "github.com/argoproj/argo-cd/gitops-engine/pkg/utils/text"

var (
	FirstNonEmpty = engine.FirstNonEmpty
)
