package workload_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/devworkload"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/test/kit"
)

var (
	domain    = spiffeid.RequireTrustDomainFromString("hub.test")
	principal = spiffeid.RequireFromString("spiffe://hub.test/principal")
	edge      = spiffeid.RequireFromString("spiffe://hub.test/argomesh/agent/edge-1")
)

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "wl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// api is a Workload API that can be stopped and started at one socket.
type api struct {
	*devworkload.Server
	t    *testing.T
	path string
	stop func()
}

// newAPI makes one that does not run yet.
func newAPI(t *testing.T, cfg devworkload.Config) *api {
	t.Helper()
	if cfg.TrustDomain.IsZero() {
		cfg.TrustDomain = domain
	}
	server, err := devworkload.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &api{Server: server, t: t, path: filepath.Join(shortDir(t), "s"), stop: func() {}}
}

func (a *api) socket() string { return "unix://" + a.path }

// start serves until stop is called or the test ends.
func (a *api) start() *api {
	a.t.Helper()
	l, err := devworkload.Listen(context.Background(), a.path, 0o600)
	if err != nil {
		a.t.Fatal(err)
	}
	a.stop = kit.Background(a.t, func(ctx context.Context) error { return a.Run(ctx, l) })
	return a
}

func entries(ids ...spiffeid.ID) []devworkload.Entry {
	var out []devworkload.Entry
	for _, id := range ids {
		out = append(out, devworkload.Entry{ID: id})
	}
	return out
}

// testSource is a running source with what it says.
type testSource struct {
	*workload.Source
	registry *prometheus.Registry
	log      *kit.Log
}

// run makes a source and runs it until the test ends.
func run(t *testing.T, cfg workload.Config) *testSource {
	t.Helper()
	s := &testSource{registry: prometheus.NewRegistry(), log: kit.NewLog()}
	cfg.Metrics, cfg.Log = s.registry, s.log.Logger()
	source, err := workload.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.Source = source
	kit.Background(t, source.Run)
	return s
}

// ready is run, and waits for the SVID.
func ready(t *testing.T, cfg workload.Config) *testSource {
	t.Helper()
	s := run(t, cfg)
	if err := s.WaitReady(kit.Context(t)); err != nil {
		t.Fatal(err)
	}
	return s
}

// waitFor returns when holds does, looking at each change of the source.
func (s *testSource) waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(kit.Patience)
	for {
		updated := s.Updated()
		if holds() {
			return
		}
		select {
		case <-updated:
		case <-deadline:
			t.Fatalf("waited in vain: %s; Ready() = %v, Degraded() = %v", what, s.Ready(), s.Degraded())
		}
	}
}

// metric returns the value of a gauge or counter, of the given label value if it
// has any.
func (s *testSource) metric(t *testing.T, name, label string) (value float64, present bool) {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			if label == "" || m.GetLabel()[0].GetValue() == label {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue(), true
			}
		}
	}
	return 0, false
}

// healthService answers Check with OK and keeps each Watch open; it tells who
// called.
type healthService struct {
	grpc_health_v1.UnimplementedHealthServer
	mu    sync.Mutex
	peers []identity.Peer // guarded by mu
	errs  []error         // guarded by mu
}

func (h *healthService) note(ctx context.Context) {
	p, err := workload.PeerFromContext(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.peers, h.errs = append(h.peers, p), append(h.errs, err)
}

func (h *healthService) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	h.note(ctx)
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

// Watch sends one message for every 50 ms, until the caller leaves.
func (h *healthService) Watch(_ *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	h.note(stream.Context())
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := stream.Send(&grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-tick.C:
		}
	}
}

// server is a gRPC server with the credentials of a source.
type server struct {
	address string
	health  *healthService
	log     *kit.Log
	source  *testSource
}

func serve(t *testing.T, source *testSource) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{address: l.Addr().String(), health: &healthService{}, log: kit.NewLog(), source: source}
	srv := grpc.NewServer(grpc.Creds(source.ServerCredentials(s.log.Logger())))
	grpc_health_v1.RegisterHealthServer(srv, s.health)
	kit.Serve(t, srv, l)
	return s
}

// dial returns a client of address that accepts the given IDs.
func (s *testSource) dial(t *testing.T, address string, accept ...spiffeid.ID) grpc_health_v1.HealthClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(s.ClientCredentials(identity.AllowIDs(accept...))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return grpc_health_v1.NewHealthClient(conn)
}

// call makes one call.
func call(t *testing.T, client grpc_health_v1.HealthClient) error {
	t.Helper()
	_, err := client.Check(kit.Context(t), &grpc_health_v1.HealthCheckRequest{})
	return err
}
