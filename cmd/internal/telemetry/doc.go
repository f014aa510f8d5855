// Package telemetry builds what a binary reports through: its logger, its metrics
// registry and its tracer. It owns formats and exporters; what is reported is
// left to the packages that are given these values. Nothing is global but what
// [AdoptLibraryLogs] must set.
//
//	log := telemetry.NewLogger(cfg.Log, os.Stderr)
//	telemetry.AdoptLibraryLogs(log)
//	registry := telemetry.NewRegistry(build)
//	tracing, err := telemetry.NewTracing(ctx, telemetry.TracingConfig{...})
//	defer tracing.Shutdown(...)
package telemetry
