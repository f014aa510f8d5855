//go:build linux

package env

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// Traces is an OTLP trace receiver on loopback, which keeps what it takes in a file.
type Traces struct {
	address, file string
}

// Span is what a test looks for in a trace.
type Span struct{ Service, Name, Resource string }

// spanRecord is a line of the file.
type spanRecord struct {
	Span
	Trace string
	Links []string // traces to which that of the span is linked
}

// receiver writes the file.
type receiver struct {
	collectorpb.UnimplementedTraceServiceServer

	mu  sync.Mutex // guards out
	out *json.Encoder
}

// startTraces starts a receiver, which ends with this program.
func startTraces(ctx context.Context, file string) (*Traces, error) {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(s, &receiver{out: json.NewEncoder(out)})
	go func() { _ = s.Serve(l) }() // ends with the process
	return &Traces{address: l.Addr().String(), file: file}, nil
}

// Export takes spans.
func (c *receiver) Export(_ context.Context, r *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.GetResourceSpans() {
		service := ""
		for _, a := range resource.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				one := spanRecord{Trace: fmt.Sprintf("%x", s.GetTraceId()), Span: Span{Service: service, Name: s.GetName()}}
				for _, a := range s.GetAttributes() {
					if a.GetKey() == "argomesh.resource" {
						one.Resource = a.GetValue().GetStringValue()
					}
				}
				for _, l := range s.GetLinks() {
					one.Links = append(one.Links, fmt.Sprintf("%x", l.GetTraceId()))
				}
				if err := c.out.Encode(one); err != nil {
					return nil, err
				}
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// Has reports whether one trace holds all spans of change, and another, which is linked to
// it, all of back.
func (c *Traces) Has(change, back []Span) error {
	content, err := os.ReadFile(c.file)
	if err != nil {
		return err
	}
	spans, links := map[string][]Span{}, map[string][]string{}
	for line := range strings.Lines(string(content)) {
		var one spanRecord
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			return err
		}
		spans[one.Trace] = append(spans[one.Trace], one.Span)
		links[one.Trace] = append(links[one.Trace], one.Links...)
	}
	changes, answers := holding(spans, change), holding(spans, back)
	for _, answer := range answers {
		if slices.ContainsFunc(links[answer], func(trace string) bool { return slices.Contains(changes, trace) }) {
			return nil
		}
	}
	return fmt.Errorf("%d traces hold %v, and of %d that hold %v none is linked to one of them", len(changes), change, len(answers), back)
}

// holding returns the traces that hold all these spans.
func holding(traces map[string][]Span, wanted []Span) (found []string) {
	for trace, spans := range traces {
		if !slices.ContainsFunc(wanted, func(s Span) bool { return !slices.Contains(spans, s) }) {
			found = append(found, trace)
		}
	}
	return found
}
