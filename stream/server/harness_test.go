package server_test

import (
	"context"
	"net"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/server"
	"github.com/argomesh/argomesh/stream/streampb"
	"github.com/argomesh/argomesh/test/kit"
	"github.com/argomesh/argomesh/test/kit/spiffekit"
)

var (
	hubDomain   = spiffeid.RequireTrustDomainFromString("hub.test")
	otherDomain = spiffeid.RequireTrustDomainFromString("other.test")
	principalID = spiffeid.RequireFromString("spiffe://hub.test/principal")
	edge1ID     = spiffeid.RequireFromString("spiffe://hub.test/argomesh/agent/edge-1")
	edge2ID     = spiffeid.RequireFromString("spiffe://hub.test/argomesh/agent/edge-2")
	strangerID  = spiffeid.RequireFromString("spiffe://hub.test/argomesh/agent/stranger")
)

func agent(name string, ids ...spiffeid.ID) v1alpha1.Agent {
	a := v1alpha1.Agent{}
	a.Name = name
	a.Spec.Mode = v1alpha1.ModeManaged
	for _, id := range ids {
		a.Spec.Identity.SPIFFEIDs = append(a.Spec.Identity.SPIFFEIDs, id.String())
	}
	return a
}

// hub is a running server, whose connections answer each heartbeat.
type hub struct {
	t        *testing.T
	trust    *spiffekit.Domain
	registry *fleet.Registry
	metrics  *prometheus.Registry
	log      *kit.Log
	address  string
	stop     func()
	sessions chan server.Session
}

// newHub runs a server with edge-1 and edge-2 registered. change may alter its
// configuration; it also serves on the listeners.
func newHub(t *testing.T, change func(*server.Config), listeners ...net.Listener) *hub {
	t.Helper()
	h := &hub{
		t: t, trust: spiffekit.New(t, hubDomain), registry: &fleet.Registry{},
		metrics: prometheus.NewRegistry(), log: kit.NewLog(), sessions: make(chan server.Session, 16),
	}
	h.registry.Set([]v1alpha1.Agent{agent("edge-1", edge1ID), agent("edge-2", edge2ID)})
	cfg := server.Config{
		Credentials:  h.trust.Source(principalID).ServerCredentials(zerolog.New(h.log)),
		Authenticate: workload.PeerFromContext, Registry: h.registry,
		Serve: h.serve, HubUID: "hub-uid", Version: "v1.2.3", Metrics: h.metrics, Log: zerolog.New(h.log),
	}
	if change != nil {
		change(&cfg)
	}
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.address = l.Addr().String()
	h.stop = kit.Background(t, func(ctx context.Context) error { return s.Run(ctx, append(listeners, l)...) })
	return h
}

// serve answers heartbeats until the connection ends.
func (h *hub) serve(ctx context.Context, s server.Session, conn *server.Conn) error {
	select {
	case h.sessions <- s:
	default: // a test that opens many does not look at them
	}
	ended := make(chan error, 1)
	go func() {
		for {
			m, err := conn.Recv()
			if err == nil {
				if beat, ok := m.(stream.Heartbeat); ok {
					err = conn.Send(beat)
				}
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// caller is one gRPC connection to the hub.
type caller struct {
	t  *testing.T
	cc *grpc.ClientConn
}

func (h *hub) dial(creds credentials.TransportCredentials) *caller {
	h.t.Helper()
	cc, err := grpc.NewClient(h.address, grpc.WithTransportCredentials(creds), grpc.WithDisableServiceConfig())
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = cc.Close() })
	return &caller{t: h.t, cc: cc}
}

// as dials with the SVID of a workload of the hub's trust domain.
func (h *hub) as(id spiffeid.ID) *caller {
	h.t.Helper()
	return h.dial(h.trust.Source(id).ClientCredentials(identity.AllowIDs(principalID)))
}

// frames is an open call.
type frames struct {
	grpc.BidiStreamingClient[streampb.Frame, streampb.Frame]
}

// call opens a stream and sends the first frame.
func (c *caller) call(first *streampb.Frame) (frames, error) {
	c.t.Helper()
	s, err := streampb.NewStreamClient(c.cc).Connect(kit.Context(c.t))
	if err != nil {
		return frames{}, err
	}
	if first != nil {
		_ = s.Send(first) // what went wrong is what Recv returns
	}
	return frames{s}, nil
}

// try is call, and waits for the first answer.
func (c *caller) try(first *streampb.Frame) (frames, stream.Welcome, error) {
	c.t.Helper()
	s, err := c.call(first)
	if err != nil {
		return frames{}, stream.Welcome{}, err
	}
	frame, err := s.Recv()
	if err != nil {
		return frames{}, stream.Welcome{}, err
	}
	w, err := stream.ParseWelcome(frame)
	return s, w, err
}

// connect is try for a hello that must be welcome.
func (c *caller) connect(name string) frames {
	c.t.Helper()
	s, _, err := c.try(helloFrame(c.t, name))
	if err != nil {
		c.t.Fatalf("Connect() as %s = %v", name, err)
	}
	return s
}

// alive fails the test unless the server answers on the stream.
func (f frames) alive(t *testing.T) {
	t.Helper()
	if err := f.Send(stream.FrameOf(stream.Heartbeat{})); err != nil {
		t.Fatalf("an open stream is broken: %v", err)
	}
	if _, err := f.Recv(); err != nil {
		t.Fatalf("an open stream is broken: %v", err)
	}
}

// end waits for the end of the stream and returns its status.
func (f frames) end() error {
	for {
		if _, err := f.Recv(); err != nil {
			return err
		}
	}
}

func hello(t *testing.T, name string) stream.Hello {
	t.Helper()
	n, err := identity.ParseAgentName(name)
	if err != nil {
		t.Fatal(err)
	}
	return stream.Hello{
		Protocol: stream.Protocol, Version: "v1.2.3", Agent: n, Mode: stream.Managed, ClusterUID: "cluster-uid", Kubernetes: "v1.36.1",
	}
}

func helloFrame(t *testing.T, name string) *streampb.Frame { return stream.HelloFrame(hello(t, name)) }

// metric returns the value of a gauge or counter, of the given label value if it
// has any; zero when it is not there.
func (h *hub) metric(name, label string) float64 {
	h.t.Helper()
	families, err := h.metrics.Gather()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return 0
}
