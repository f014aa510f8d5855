// Package start builds what principal and agent have in common before their own
// parts: logger, metrics registry, tracer and Kubernetes clients. Which parts
// there are, and their life, is left to the mains.
//
//	base, err := start.New(ctx, start.Config{
//		Program: "principal", Build: build, Output: os.Stderr,
//		Log: cfg.Log, Tracing: cfg.Tracing, Kubernetes: cfg.Kubernetes,
//	})
//	...
//	defer base.Close(ctx)
package start

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/dynamic"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/kubeconfig"
	"github.com/argomesh/argomesh/cmd/internal/telemetry"
)

// flushTime bounds the export of the last traces.
const flushTime = 5 * time.Second

// Config holds what a Base is made of. Fields without a stated default are
// required.
type Config struct {
	// Program is the binary's name, "agent". The service of its traces and its user
	// agent are argomesh-<program>.
	Program string
	Build   buildinfo.Info
	// Output is where the log is written.
	Output io.Writer
	// Fields are added to each message. Nil means none.
	Fields     func(zerolog.Context) zerolog.Context
	Log        config.Log
	Tracing    config.Tracing
	Kubernetes config.Kubernetes
}

// Base is what the parts of a process are built with. All fields are set.
type Base struct {
	Log     zerolog.Logger
	Metrics *prometheus.Registry
	// Tracer records nothing when tracing is off.
	Tracer trace.Tracer
	// REST is the configuration of the clients. A call that belongs to a trace
	// becomes part of it.
	REST    *rest.Config
	Dynamic dynamic.Interface
	// Writes is for what peers have this process write. Its limits are its own, those of
	// REST once more, so that no other call waits behind such writes.
	Writes dynamic.Interface
	// Metadata lists objects without their contents.
	Metadata metadata.Interface
	Leases   coordination.LeasesGetter

	tracing *telemetry.Tracing
}

// New builds a Base. Of libraries that log globally it adopts the logs, so a
// process calls it once. No API server is contacted.
func New(ctx context.Context, cfg Config) (*Base, error) {
	b := &Base{Log: telemetry.NewLogger(cfg.Log, cfg.Output), Metrics: telemetry.NewRegistry(cfg.Build)}
	if cfg.Fields != nil {
		b.Log = cfg.Fields(b.Log.With()).Logger()
	}
	telemetry.AdoptLibraryLogs(b.Log)
	name := "argomesh-" + cfg.Program
	var err error
	if b.REST, err = kubeconfig.Load(cfg.Kubernetes, name+"/"+cfg.Build.Version); err != nil {
		return nil, err
	}
	if b.tracing, err = telemetry.NewTracing(ctx, telemetry.TracingConfig{
		Settings: cfg.Tracing, Service: name, Build: cfg.Build, Log: b.Log,
	}); err != nil {
		return nil, err
	}
	b.Tracer = b.tracing.Provider.Tracer("github.com/argomesh/argomesh")
	if err := b.clients(); err != nil {
		return nil, errors.Join(err, b.tracing.Shutdown(ctx))
	}
	return b, nil
}

func (b *Base) clients() (err error) {
	b.REST.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return otelhttp.NewTransport(rt, otelhttp.WithTracerProvider(b.tracing.Provider),
			otelhttp.WithFilter(func(r *http.Request) bool {
				return trace.SpanContextFromContext(r.Context()).IsValid() // only what belongs to a change
			}))
	})
	if b.Dynamic, err = dynamic.NewForConfig(b.REST); err != nil {
		return fmt.Errorf("kubernetes client: %w", err)
	}
	if b.Writes, err = dynamic.NewForConfig(b.REST); err != nil {
		return fmt.Errorf("kubernetes client: %w", err)
	}
	if b.Metadata, err = metadata.NewForConfig(b.REST); err != nil {
		return fmt.Errorf("kubernetes client: %w", err)
	}
	if b.Leases, err = coordination.NewForConfig(b.REST); err != nil {
		return fmt.Errorf("kubernetes client: %w", err)
	}
	return nil
}

// Close exports the last traces, after all else has ended. It takes five seconds
// at most, whether or not ctx is done.
func (b *Base) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	if err := b.tracing.Shutdown(ctx); err != nil {
		b.Log.Warn().Err(err).Msg("cannot export the last traces")
	}
}
