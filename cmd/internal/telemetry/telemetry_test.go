package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"

	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/telemetry"
	"github.com/argomesh/argomesh/test/kit"
	"github.com/argomesh/argomesh/test/loopback"
)

func TestNewLogger(t *testing.T) {
	var out bytes.Buffer
	log := telemetry.NewLogger(config.Log{Level: config.Level(zerolog.InfoLevel), Format: config.FormatJSON}, &out)
	log.Debug().Msg("not written")
	log.Info().Str("agent", "edge-1").Msg("agent connected")
	line := parse(t, out.String())
	if at, err := time.Parse("2006-01-02T15:04:05.000Z", line["time"].(string)); err != nil || time.Since(at).Abs() > time.Hour {
		t.Errorf("time = %v: want now, in UTC with milliseconds", line["time"])
	}
	delete(line, "time")
	if diff := cmp.Diff(map[string]any{"level": "info", "agent": "edge-1", "message": "agent connected"}, line); diff != "" {
		t.Errorf("line (-want +got)\n%s", diff)
	}

	out.Reset()
	log = telemetry.NewLogger(config.Log{Level: config.Level(zerolog.DebugLevel), Format: config.FormatConsole}, &out)
	log.Debug().Str("agent", "edge-1").Msg("agent connected")
	if got := out.String(); !strings.HasSuffix(got, " DBG agent connected agent=edge-1\n") || strings.Contains(got, "nil") {
		t.Errorf("console line = %q", got)
	}
}

// AdoptLibraryLogs sets what is global in other libraries, so its cases run one
// after the other.
func TestAdoptLibraryLogs(t *testing.T) {
	var out bytes.Buffer
	telemetry.AdoptLibraryLogs(telemetry.NewLogger(config.Log{Level: config.Level(zerolog.DebugLevel), Format: config.FormatJSON}, &out))
	t.Cleanup(func() {
		klog.ClearLogger()
		slog.SetDefault(slog.New(slog.DiscardHandler))
	})
	for name, c := range map[string]struct {
		log  func()
		want map[string]any
	}{
		"klog": {
			func() { klog.ErrorS(errors.New("gone"), "Watch ended", "resource", "pods") },
			map[string]any{"level": "error", "library": "client-go", "error": "gone", "resource": "pods", "message": "Watch ended"},
		},
		"klog in a context": {
			func() { klog.FromContext(t.Context()).WithValues("err", errors.New("x")).Info("Synced", "count", 3) },
			map[string]any{"level": "info", "library": "client-go", "error": "x", "count": 3.0, "message": "Synced"},
		},
		"slog": {
			func() { slog.Warn("slow", "duration", 2*time.Second) },
			map[string]any{"level": "warn", "library": "slog", "duration": 2000.0, "message": "slow"},
		},
		"gRPC info": {
			func() { grpclog.Component("core").Infof("channel %d", 1) },
			map[string]any{"level": "debug", "library": "grpc", "text": "[core] channel 1", "message": "gRPC message"},
		},
		"gRPC warning": {
			func() { grpclog.Warning("failed to connect ", 1) },
			map[string]any{"level": "debug", "library": "grpc", "text": "failed to connect 1", "message": "gRPC message"},
		},
		"gRPC error": {
			func() { grpclog.Error("broken ", 1) },
			map[string]any{"level": "warn", "library": "grpc", "text": "broken 1", "message": "gRPC message"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			out.Reset()
			c.log()
			if n := strings.Count(out.String(), `"time":`); n != 1 {
				t.Errorf("%d times in %s", n, out.String())
			}
			line := parse(t, out.String())
			delete(line, "time")
			if diff := cmp.Diff(c.want, line); diff != "" {
				t.Errorf("line (-want +got)\n%s", diff)
			}
		})
	}
}

func TestAdoptLibraryLogsOfRedis(t *testing.T) {
	var out bytes.Buffer
	telemetry.AdoptLibraryLogs(telemetry.NewLogger(config.Log{Level: config.Level(zerolog.DebugLevel), Format: config.FormatJSON}, &out))
	t.Cleanup(func() {
		klog.ClearLogger()
		slog.SetDefault(slog.New(slog.DiscardHandler))
	})
	client := redis.NewClient(&redis.Options{MaxRetries: -1, DialerRetries: 1, Dialer: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("nobody is there")
	}})
	if err := client.Ping(t.Context()).Err(); err == nil {
		t.Error("Ping() = nil")
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	line := parse(t, out.String())
	if line["level"] != "debug" || line["library"] != "go-redis" || line["message"] != "Redis message" || !strings.Contains(fmt.Sprint(line["text"]), "nobody is there") {
		t.Errorf("line = %v", line)
	}
}

func TestNewRegistry(t *testing.T) {
	registry := telemetry.NewRegistry(buildinfo.Info{Version: "v1", Revision: "abc", GoVersion: "go1.26.3"})
	want := `# HELP argomesh_build_info Build of this process, in the labels; the value is always 1.
# TYPE argomesh_build_info gauge
argomesh_build_info{go_version="go1.26.3",revision="abc",version="v1"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "argomesh_build_info"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes"} {
		if n, err := testutil.GatherAndCount(registry, name); n != 1 || err != nil {
			t.Errorf("%s is there %d times, %v", name, n, err)
		}
	}
}

func TestTracingOff(t *testing.T) {
	tracing := newTracing(t, config.DefaultTracing(), zerolog.Nop())
	ctx, span := tracing.Provider.Tracer("test").Start(t.Context(), "stream.send")
	span.End()
	if span.IsRecording() || trace.SpanContextFromContext(ctx).IsValid() {
		t.Error("a span is recorded though tracing is off")
	}
	if err := tracing.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTracingOffForwardsATrace(t *testing.T) {
	tracing := newTracing(t, config.DefaultTracing(), zerolog.Nop())
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx := tracing.Propagator.Extract(t.Context(), propagation.MapCarrier{"traceparent": parent})
	ctx, span := tracing.Provider.Tracer("test").Start(ctx, "stream.send")
	defer span.End()
	sent := propagation.MapCarrier{}
	tracing.Propagator.Inject(ctx, sent)
	if sent["traceparent"] != parent {
		t.Errorf("traceparent = %q, want that of the parent", sent["traceparent"])
	}
}

func TestTracingExports(t *testing.T) {
	sink := &sink{}
	settings := config.Tracing{OTLPEndpoint: sink.serve(t), Insecure: true, SampleRatio: 1}
	tracing := newTracing(t, settings, zerolog.Nop())
	_, span := tracing.Provider.Tracer("test").Start(t.Context(), "stream.send")
	span.End()
	if err := tracing.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"service.name=principal", "service.version=v1", "span stream.send"}
	if diff := cmp.Diff(want, sink.got); diff != "" {
		t.Errorf("exported (-want +got)\n%s", diff)
	}
}

func TestTracingWithoutCollector(t *testing.T) {
	settings := config.Tracing{OTLPEndpoint: loopback.Address(t), Insecure: true, SampleRatio: 1}
	tracing := newTracing(t, settings, zerolog.Nop())
	_, span := tracing.Provider.Tracer("test").Start(t.Context(), "stream.send")
	span.End()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	started := time.Now()
	if err := tracing.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown() = %v", err)
	}
	if took := time.Since(started); took > 10*time.Second {
		t.Errorf("Shutdown() took %v though its context ended", took)
	}
}

func newTracing(t *testing.T, settings config.Tracing, log zerolog.Logger) *telemetry.Tracing {
	t.Helper()
	tracing, err := telemetry.NewTracing(t.Context(), telemetry.TracingConfig{
		Settings: settings, Service: "principal", Build: buildinfo.Info{Version: "v1"}, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	return tracing
}

// sink is a small OpenTelemetry collector.
type sink struct {
	collector.UnimplementedTraceServiceServer
	mu  sync.Mutex // guards got
	got []string
}

// Export records the resource and the names of the spans.
func (s *sink) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range r.GetResourceSpans() {
		for _, a := range resource.GetResource().GetAttributes() {
			s.got = append(s.got, a.GetKey()+"="+a.GetValue().GetStringValue())
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				s.got = append(s.got, "span "+span.GetName())
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func (s *sink) serve(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, s)
	kit.Serve(t, server, l)
	return l.Addr().String()
}

func parse(t *testing.T, line string) map[string]any {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(line), &fields); err != nil {
		t.Fatalf("not one JSON line: %q: %v", line, err)
	}
	return fields
}
