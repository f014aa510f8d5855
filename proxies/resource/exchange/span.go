package exchange

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// StartSpan begins the span of a call, as part of the caller's trace if it has one.
func StartSpan(r *http.Request, tracer trace.Tracer, name string, kind trace.SpanKind) (context.Context, trace.Span) {
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	return tracer.Start(ctx, name, trace.WithSpanKind(kind)) //nolint:spancheck // the caller ends it
}
