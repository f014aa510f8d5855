package worker

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/argomesh/argomesh/stream"
)

// TraceParent is how a span is named on the wire (W3C Trace Context, section 3.2); empty for
// none.
func TraceParent(sc trace.SpanContext) string {
	if !sc.IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(Carrying(sc), carrier)
	return carrier["traceparent"]
}

// Carrying is how OpenTelemetry takes a span's identity. Nothing waits for it, and so
// nothing has to end it.
func Carrying(sc trace.SpanContext) context.Context {
	return trace.ContextWithSpanContext(context.Background(), sc) //nolint:forbidigo // see above
}

// startSpan starts the span of what a peer sent. A spoke goes on with the hub's trace. On
// the hub a trace begins, with a link to the spoke's: what a spoke says must not decide what
// the hub records and pays for.
func (w *writer) startSpan(ctx context.Context, e stream.Event) (context.Context, trace.Span) {
	options := []trace.SpanStartOption{trace.WithAttributes(
		attribute.String("argomesh.resource", e.Key.String()), attribute.Stringer("argomesh.agent", w.task.Rules.Agent))}
	told := propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": e.TraceParent})
	if w.task.Rules.Side == stream.Spoke {
		return w.worker.cfg.Tracer.Start(told, "mirror.apply", options...) //nolint:spancheck // the caller ends it
	}
	options = append(options, trace.WithNewRoot())
	if sc := trace.SpanContextFromContext(told); sc.IsRemote() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: sc}))
	}
	return w.worker.cfg.Tracer.Start(ctx, "mirror.apply", options...) //nolint:spancheck // the caller ends it
}
