// Package tracing is gitops-engine's of a later release: see go.mod.
package tracing

import engine "github.com/argoproj/argo-cd/gitops-engine/pkg/utils/tracing"

type (
	NopTracer = engine.NopTracer
	Tracer    = engine.Tracer
)

var (
	NewLoggingTracer = engine.NewLoggingTracer
)
