package telemetry_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	otellog "go.opentelemetry.io/otel/log"
	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/grpc"

	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
	"github.com/argomesh/argomesh/cmd/internal/telemetry"
)

// recordSink is a small OpenTelemetry collector.
type recordSink struct {
	collector.UnimplementedLogsServiceServer
	mu  sync.Mutex // guards got
	got []string
}

func (s *recordSink) Export(_ context.Context, r *collector.ExportLogsServiceRequest) (*collector.ExportLogsServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range r.GetResourceLogs() {
		for _, a := range resource.GetResource().GetAttributes() {
			s.got = append(s.got, a.GetKey()+"="+a.GetValue().GetStringValue())
		}
		for _, scope := range resource.GetScopeLogs() {
			for _, record := range scope.GetLogRecords() {
				s.got = append(s.got, "record "+record.GetEventName())
			}
		}
	}
	return &collector.ExportLogsServiceResponse{}, nil
}

func TestRecordsAreExported(t *testing.T) {
	sink := &recordSink{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collector.RegisterLogsServiceServer(server, sink)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	records, err := telemetry.NewRecords(t.Context(), telemetry.RecordsConfig{
		Endpoint: l.Addr().String(), Insecure: true, Service: "principal", Build: buildinfo.Info{Version: "v1"}, Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	var record otellog.Record
	record.SetEventName("call")
	records.Provider.Logger("test").Emit(t.Context(), record)
	if err := records.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"service.name=principal", "service.version=v1", "record call"}, sink.got); diff != "" {
		t.Errorf("exported (-want +got)\n%s", diff)
	}
}

func TestRecordsOff(t *testing.T) {
	records, err := telemetry.NewRecords(t.Context(), telemetry.RecordsConfig{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	records.Provider.Logger("test").Emit(t.Context(), otellog.Record{})
	if err := records.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
