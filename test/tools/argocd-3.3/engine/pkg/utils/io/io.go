// Package io is gitops-engine's of a later release: see go.mod.
package io

import engine "github.com/argoproj/argo-cd/gitops-engine/pkg/utils/io"

var (
	TempDir = engine.TempDir
)
