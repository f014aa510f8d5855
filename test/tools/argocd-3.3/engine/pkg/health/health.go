// Package health is gitops-engine's of a later release: see go.mod.
package health

import engine "github.com/argoproj/argo-cd/gitops-engine/pkg/health"

type (
	HealthStatus     = engine.HealthStatus
	HealthStatusCode = engine.HealthStatusCode
)

const (
	HealthStatusDegraded    = engine.HealthStatusDegraded
	HealthStatusHealthy     = engine.HealthStatusHealthy
	HealthStatusMissing     = engine.HealthStatusMissing
	HealthStatusProgressing = engine.HealthStatusProgressing
	HealthStatusSuspended   = engine.HealthStatusSuspended
	HealthStatusUnknown     = engine.HealthStatusUnknown
)

var (
	GetHealthCheckFunc = engine.GetHealthCheckFunc
	GetResourceHealth  = engine.GetResourceHealth
	IsWorse            = engine.IsWorse
)
