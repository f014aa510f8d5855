package telemetry

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/rs/zerolog"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// failing is an exporter whose collector is away.
type failing struct {
	sdktrace.SpanExporter
	err error
}

func (f failing) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return f.err }

func TestForgivingExporterWarnsNowAndThen(t *testing.T) {
	var out bytes.Buffer
	exporter := newForgivingExporter(failing{err: errors.New("collector away")}, zerolog.New(&out))
	for range 3 {
		if err := exporter.ExportSpans(t.Context(), make([]sdktrace.ReadOnlySpan, 2)); err != nil {
			t.Fatalf("ExportSpans() = %v, want nil", err)
		}
	}
	want := `{"level":"warn","error":"collector away","spans":2,"message":"spans not exported"}` + "\n"
	if out.String() != want {
		t.Errorf("log of three failed exports\n got %s\nwant %s", out.String(), want)
	}
}

func TestForgivingExporterIsSilentAtTheEnd(t *testing.T) {
	var out bytes.Buffer
	exporter := newForgivingExporter(failing{err: context.Canceled}, zerolog.New(&out))
	if err := exporter.ExportSpans(t.Context(), nil); err != nil || out.Len() > 0 {
		t.Errorf("ExportSpans() = %v, log %q, want neither", err, out.String())
	}
}
