package telemetry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
	"github.com/argomesh/argomesh/cmd/internal/config"
)

// exportWarnings is how often a failing export is logged: once per this time.
const exportWarnings = time.Minute

// TracingConfig says what is traced, and to where. All fields are required.
type TracingConfig struct {
	Settings config.Tracing
	Service  string // service.name of the spans: the binary's name
	Build    buildinfo.Info
	Log      zerolog.Logger
}

// Tracing is what spans are made with. Both fields are always set and safe for
// concurrent use.
type Tracing struct {
	// Provider makes tracers. It records nothing when tracing is off.
	Provider trace.TracerProvider
	// Propagator carries a trace between processes, in the form of W3C Trace
	// Context.
	Propagator propagation.TextMapPropagator

	shutdown func(context.Context) error
}

// NewTracing returns the tracing of one process. With an endpoint set it starts
// the exporter, which [Tracing.Shutdown] stops; the collector need not be
// there, neither now nor later.
func NewTracing(ctx context.Context, cfg TracingConfig) (*Tracing, error) {
	if cfg.Settings.OTLPEndpoint == "" {
		return newTracing(noop.NewTracerProvider(), func(context.Context) error { return nil }), nil
	}
	options := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(cfg.Settings.OTLPEndpoint)}
	if cfg.Settings.Insecure {
		options = append(options, otlptracegrpc.WithInsecure())
	}
	exporter, err := otlptracegrpc.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("tracing.otlp_endpoint: export to %s: %w", cfg.Settings.OTLPEndpoint, err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(cfg.Settings.SampleRatio))),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", cfg.Service),
			attribute.String("service.version", cfg.Build.Version),
		)),
		sdktrace.WithBatcher(newForgivingExporter(exporter, cfg.Log)),
	)
	return newTracing(provider, provider.Shutdown), nil
}

func newTracing(provider trace.TracerProvider, shutdown func(context.Context) error) *Tracing {
	return &Tracing{Provider: provider, Propagator: propagation.TraceContext{}, shutdown: shutdown}
}

// Shutdown exports the spans that ended so far and stops the exporter. It is
// called last, once, and gives up when ctx ends.
func (t *Tracing) Shutdown(ctx context.Context) error {
	if err := t.shutdown(ctx); err != nil {
		return fmt.Errorf("export the last spans: %w", err)
	}
	return nil
}

// forgivingExporter logs failed exports, now and then, instead of handing them
// to OpenTelemetry's global error handler.
type forgivingExporter struct {
	sdktrace.SpanExporter
	log zerolog.Logger
}

func newForgivingExporter(exporter sdktrace.SpanExporter, log zerolog.Logger) *forgivingExporter {
	return &forgivingExporter{
		SpanExporter: exporter,
		log:          log.Sample(&zerolog.BurstSampler{Burst: 1, Period: exportWarnings}),
	}
}

// ExportSpans exports the spans or loses them; it never fails.
func (e *forgivingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err != nil && !errors.Is(err, context.Canceled) {
		e.log.Warn().Err(err).Int("spans", len(spans)).Msg("spans not exported")
	}
	return nil
}
