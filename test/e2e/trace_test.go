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

	mu    sync.Mutex // guards spans
	spans []span
}

type span struct{ trace, service, name, resource string }

func startCollector() (*collector, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &collector{address: l.Addr().String()}
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
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// has reports whether one trace holds all these spans.
func (c *collector) has(wanted ...span) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	traces := map[string][]span{}
	for _, s := range c.spans {
		id := s.trace
		s.trace = ""
		traces[id] = append(traces[id], s)
	}
	for _, spans := range traces {
		missing := slices.DeleteFunc(slices.Clone(wanted), func(s span) bool { return slices.Contains(spans, s) })
		if len(missing) == 0 {
			return nil
		}
	}
	return fmt.Errorf("none of %d traces holds %v", len(traces), wanted)
}

func TestOneTraceShowsAChangeAndItsStatus(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	create(t, w.onHub(managed), w.guestbook("traced", managed, managed))
	eventually(t, "a trace from the hub's API to the spoke's and back", func() error {
		return w.traces.has(
			span{service: "argomesh-principal", name: "mirror.observe", resource: "application traced"},
			span{service: "argomesh-agent", name: "mirror.apply", resource: "application traced"},
			span{service: "argomesh-agent", name: "HTTP POST"},
			span{service: "argomesh-agent", name: "mirror.observe", resource: "status traced"},
			span{service: "argomesh-principal", name: "mirror.apply", resource: "status traced"},
			span{service: "argomesh-principal", name: "HTTP PUT"},
		)
	})
}
