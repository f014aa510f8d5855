package telemetry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	otellog "go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/log/noop"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
)

// recordQueue is how many records wait for the collector; of more the oldest go.
const recordQueue = 8192

// RecordsConfig says what log records are exported, and to where. Fields without a
// stated default are required.
type RecordsConfig struct {
	// Endpoint is host:port of an OpenTelemetry collector (OTLP over gRPC). Empty
	// exports nothing.
	Endpoint string
	// Insecure speaks to the collector without TLS.
	Insecure bool
	Service  string // service.name of the records
	Build    buildinfo.Info
	Log      zerolog.Logger
}

// Records is what OpenTelemetry's log records are made with: those of the audit. Our
// own log is written, not exported.
type Records struct {
	// Provider makes loggers. They do not block.
	Provider otellog.LoggerProvider

	shutdown func(context.Context) error
}

// NewRecords returns the export of one process. With an endpoint it starts the
// exporter, which [Records.Shutdown] stops; the collector need not be there, neither
// now nor later.
func NewRecords(ctx context.Context, cfg RecordsConfig) (*Records, error) {
	if cfg.Endpoint == "" {
		return &Records{Provider: noop.NewLoggerProvider(), shutdown: func(context.Context) error { return nil }}, nil
	}
	options := []otlploggrpc.Option{otlploggrpc.WithEndpoint(cfg.Endpoint)}
	if cfg.Insecure {
		options = append(options, otlploggrpc.WithInsecure())
	}
	exporter, err := otlploggrpc.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("export records to %s: %w", cfg.Endpoint, err)
	}
	provider := sdklog.NewLoggerProvider(
		sdklog.WithResource(resource.NewSchemaless(
			attribute.String("service.name", cfg.Service),
			attribute.String("service.version", cfg.Build.Version),
		)),
		sdklog.WithProcessor(sdklog.NewBatchProcessor(&forgivingRecords{
			Exporter: exporter, log: cfg.Log.Sample(&zerolog.BurstSampler{Burst: 1, Period: exportWarnings}),
		}, sdklog.WithMaxQueueSize(recordQueue), sdklog.WithExportTimeout(10*time.Second))),
	)
	return &Records{Provider: provider, shutdown: provider.Shutdown}, nil
}

// Shutdown exports the records that wait and stops the exporter. It is called last,
// once, and gives up when ctx ends.
func (r *Records) Shutdown(ctx context.Context) error {
	if err := r.shutdown(ctx); err != nil {
		return fmt.Errorf("export the last records: %w", err)
	}
	return nil
}

// forgivingRecords logs failed exports, now and then, instead of handing them to
// OpenTelemetry's global error handler.
type forgivingRecords struct {
	sdklog.Exporter
	log zerolog.Logger
}

// Export exports the records or loses them; it never fails.
func (e *forgivingRecords) Export(ctx context.Context, records []sdklog.Record) error {
	if err := e.Exporter.Export(ctx, records); err != nil && !errors.Is(err, context.Canceled) {
		e.log.Warn().Err(err).Int("records", len(records)).Msg("records not exported")
	}
	return nil
}
