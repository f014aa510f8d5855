package mirror_test

import (
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/argomesh/argomesh/backends/mirror"
	"github.com/argomesh/argomesh/stream"
)

// applied has the hub create an Application, and much later the spoke show a status. It
// returns the spans with which the hub applied the second, and the spoke the first.
func applied(t *testing.T, hub, spoke trace.Sampler) (onHub, onSpoke []tracetest.SpanStub) {
	t.Helper()
	exporters := map[stream.Side]*tracetest.InMemoryExporter{stream.Hub: tracetest.NewInMemoryExporter(), stream.Spoke: tracetest.NewInMemoryExporter()}
	of := func(side stream.Side) (spans []tracetest.SpanStub) {
		for _, span := range exporters[side].GetSpans() {
			if span.Name == "mirror.apply" {
				spans = append(spans, span)
			}
		}
		return spans
	}
	r := newPair(t, options{configure: func(side stream.Side, cfg *mirror.Config) {
		sampler := map[stream.Side]trace.Sampler{stream.Hub: hub, stream.Spoke: spoke}[side]
		cfg.Tracer = trace.NewTracerProvider(trace.WithSyncer(exporters[side]), trace.WithSampler(trace.ParentBased(sampler))).Tracer("")
	}})
	r.create(r.hub, "a", nil, spec("one"))
	r.connect()
	pass(time.Hour) // what changes now is no consequence of what the hub sent
	onSpoke = of(stream.Spoke)
	exporters[stream.Hub].Reset()
	r.update(r.spoke, "a", func(app m) { app["status"] = m{"health": m{"status": "Healthy"}} })
	pass(time.Second)
	if got := at(r.get(r.hub, "a"), "status", "health", "status"); got != "Healthy" {
		t.Fatalf("the hub has health %v", got)
	}
	return of(stream.Hub), onSpoke
}

// What a spoke records does not make the hub record it too: each hub pays for its spans.
func TestASpokesTraceDecidesNothingOnTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if onHub, _ := applied(t, trace.NeverSample(), trace.AlwaysSample()); len(onHub) != 0 {
			t.Errorf("a hub that samples nothing recorded %d spans of what a spoke sent", len(onHub))
		}
	})
}

// Nor does what it leaves out keep the hub from recording, and the two traces are linked.
func TestASpokesTraceIsLinkedOnTheHub(t *testing.T) {
	for name, spoke := range map[string]trace.Sampler{"sampled": trace.AlwaysSample(), "not sampled": trace.NeverSample()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				onHub, _ := applied(t, trace.AlwaysSample(), spoke)
				if len(onHub) == 0 {
					t.Fatal("the hub recorded nothing")
				}
				for _, span := range onHub {
					if span.Parent.IsValid() {
						t.Errorf("the hub's span has parent %s", span.Parent.TraceID())
					}
					if len(span.Links) != 1 || !span.Links[0].SpanContext.IsRemote() || span.Links[0].SpanContext.TraceID() == span.SpanContext.TraceID() {
						t.Errorf("the hub's span has links %v", span.Links)
					}
				}
			})
		})
	}
}

// A spoke goes on with the hub's trace: what it does is the hub's to look into.
func TestTheHubsTraceGoesOnAtTheSpoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, onSpoke := applied(t, trace.AlwaysSample(), trace.NeverSample())
		if len(onSpoke) == 0 {
			t.Fatal("the spoke recorded nothing of what the hub sent")
		}
		for _, span := range onSpoke {
			if !span.Parent.IsRemote() || span.SpanContext.TraceFlags() != oteltrace.FlagsSampled {
				t.Errorf("the spoke's span has parent %v, flags %v", span.Parent, span.SpanContext.TraceFlags())
			}
		}
	})
}
