//go:build linux

package e2e

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// collector is an OTLP trace receiver on loopback.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	address string

	mu    sync.Mutex // guards spans and links
	spans []span
	links map[string][]string // traces to which those of a trace are linked
}

type span struct{ trace, service, name, resource string }

func startCollector() (*collector, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &collector{address: l.Addr().String(), links: map[string][]string{}}
	s := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(s, c)
	go func() { _ = s.Serve(l) }() // ends with the process
	return c, nil
}

// Export takes spans.
func (c *collector) Export(_ context.Context, r *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
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
				one := span{trace: fmt.Sprintf("%x", s.GetTraceId()), service: service, name: s.GetName()}
				for _, a := range s.GetAttributes() {
					if a.GetKey() == "argomesh.resource" {
						one.resource = a.GetValue().GetStringValue()
					}
				}
				c.spans = append(c.spans, one)
				for _, l := range s.GetLinks() {
					c.links[one.trace] = append(c.links[one.trace], fmt.Sprintf("%x", l.GetTraceId()))
				}
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// has reports whether one trace holds all spans of change, and another, which is linked to
// it, all of back.
func (c *collector) has(change, back []span) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	changes := c.holding(change)
	for _, answer := range c.holding(back) {
		if slices.ContainsFunc(c.links[answer], func(trace string) bool { return slices.Contains(changes, trace) }) {
			return nil
		}
	}
	return fmt.Errorf("%d traces hold %v, and of %d that hold %v none is linked to one of them", len(changes), change, len(c.holding(back)), back)
}

// holding returns the traces that hold all these spans.
func (c *collector) holding(wanted []span) (found []string) {
	traces := map[string][]span{}
	for _, s := range c.spans {
		id := s.trace
		s.trace = ""
		traces[id] = append(traces[id], s)
	}
	for id, spans := range traces {
		if !slices.ContainsFunc(wanted, func(s span) bool { return !slices.Contains(spans, s) }) {
			found = append(found, id)
		}
	}
	return found
}

// TestTracesShowAChangeAndItsStatus: a change of the hub is one trace on both sides. What the
// spoke says of it is a trace of the hub's own, since no spoke decides what the hub samples,
// with a link to the first.
func TestTracesShowAChangeAndItsStatus(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	create(t, w.onHub(managed), w.guestbook("traced", managed, managed))
	eventually(t, "a trace from the hub's API to the spoke's, and one back", func() error {
		return w.traces.has([]span{
			{service: "argomesh-principal", name: "mirror.observe", resource: "application traced"},
			{service: "argomesh-agent", name: "mirror.apply", resource: "application traced"},
			{service: "argomesh-agent", name: "HTTP POST"},
			{service: "argomesh-agent", name: "mirror.observe", resource: "status traced"},
		}, []span{
			{service: "argomesh-principal", name: "mirror.apply", resource: "status traced"},
			{service: "argomesh-principal", name: "HTTP PUT"},
		})
	})
}
