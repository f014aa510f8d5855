package xds_test

import (
	"context"
	"crypto/elliptic"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/mesh/xds"
	"github.com/argomesh/argomesh/test/kit"
	"github.com/argomesh/argomesh/test/kit/certkit"
)

// control is a running server, and the way to it.
type control struct {
	server *xds.Server
	conn   *grpc.ClientConn
	stop   func()
	log    *strings.Builder // complete once stopped
}

func startServer(t *testing.T, cfg xds.Config) *control {
	t.Helper()
	c := &control{log: &strings.Builder{}}
	cfg.Log = zerolog.New(zerolog.SyncWriter(c.log))
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	var err error
	if c.server, err = xds.New(cfg); err != nil {
		t.Fatal(err)
	}
	l := bufconn.Listen(64 << 10)
	c.stop = kit.Background(t, func(ctx context.Context) error { return c.server.Run(ctx, l) })
	c.conn, err = grpc.NewClient("passthrough:///xds", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.conn.Close() })
	return c
}

// envoy is one stream, driven by hand.
type envoy struct {
	t      *testing.T
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	hangUp context.CancelFunc
}

func (c *control) connect(t *testing.T) *envoy {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	t.Cleanup(cancel)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(c.conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &envoy{t, stream, cancel}
}

func (e *envoy) send(r *discoveryv3.DeltaDiscoveryRequest) {
	e.t.Helper()
	if err := e.stream.Send(r); err != nil {
		e.t.Fatal(err)
	}
}

// ask subscribes to a type, as an Envoy that has versions of it.
func (e *envoy) ask(url string, have map[string]string) {
	e.t.Helper()
	r := &discoveryv3.DeltaDiscoveryRequest{
		Node: &corev3.Node{Id: xds.DefaultNodeID}, TypeUrl: url, InitialResourceVersions: have,
	}
	if url == resourcev3.ExtensionConfigType {
		r.ResourceNamesSubscribe = []string{"tokens"}
	}
	e.send(r)
}

func (e *envoy) receive() *discoveryv3.DeltaDiscoveryResponse {
	e.t.Helper()
	r, err := e.stream.Recv()
	if err != nil {
		e.t.Fatal(err)
	}
	return r
}

// answer acknowledges a response, or rejects it for a reason.
func (e *envoy) answer(r *discoveryv3.DeltaDiscoveryResponse, reason string) {
	e.t.Helper()
	request := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}
	if reason != "" {
		request.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: reason}
	}
	e.send(request)
}

// refused returns the code with which the stream ends.
func (e *envoy) refused() codes.Code {
	e.t.Helper()
	for {
		if _, err := e.stream.Recv(); err != nil {
			return status.Code(err)
		}
	}
}

func versions(r *discoveryv3.DeltaDiscoveryResponse) map[string]string {
	out := map[string]string{}
	for _, resource := range r.GetResources() {
		out[resource.GetName()] = resource.GetVersion()
	}
	return out
}

func names(r *discoveryv3.DeltaDiscoveryResponse) []string {
	return slices.Sorted(maps.Keys(versions(r)))
}

func agents(t *testing.T, all ...string) map[identity.AgentName]mesh.Agent {
	t.Helper()
	out := map[identity.AgentName]mesh.Agent{}
	for _, s := range all {
		name, err := identity.ParseAgentName(s)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = mesh.Agent{}
	}
	return out
}

func key(t *testing.T, id string) mesh.Key {
	t.Helper()
	return mesh.Key{ID: id, Public: &certkit.Key(t, elliptic.P256()).PublicKey}
}

// snapshot is a resource proxy for agents.
func snapshot(t *testing.T, keys []mesh.Key, names ...string) mesh.Snapshot {
	t.Helper()
	s := cases(t)["agents"]
	proxy := *s.ResourceProxy
	proxy.Agents, proxy.Tokens.Keys = agents(t, names...), keys
	s.ResourceProxy = &proxy
	return s
}

func (c *control) set(t *testing.T, s mesh.Snapshot) {
	t.Helper()
	if err := c.server.Set(s); err != nil {
		t.Fatal(err)
	}
}

// expectKeys waits until exactly these keys are acknowledged.
func (c *control) expectKeys(t *testing.T, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	for {
		have, changed := c.server.Acknowledged()
		if slices.Equal(have, want) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("acknowledged are %q, want %q", have, want)
		}
	}
}

// Only what is new is sent, to an Envoy that stays and to one that comes back to
// another server.
func TestServerSendsWhatIsNew(t *testing.T) {
	one := key(t, "1")
	c := startServer(t, xds.Config{})
	c.set(t, snapshot(t, []mesh.Key{one}, "a", "b"))
	e := c.connect(t)
	e.ask(resourcev3.ScopedRouteType, nil)
	first := e.receive()
	if diff := cmp.Diff([]string{"a", "b"}, names(first)); diff != "" {
		t.Fatalf("routes (-want +got):\n%s", diff)
	}
	e.answer(first, "")
	c.set(t, snapshot(t, []mesh.Key{one}, "b", "c"))
	second := e.receive()
	if diff := cmp.Diff([][]string{{"c"}, {"a"}}, [][]string{names(second), second.GetRemovedResources()}); diff != "" {
		t.Fatalf("new and gone (-want +got):\n%s", diff)
	}
	e.answer(second, "")
	moved := snapshot(t, []mesh.Key{one}, "b", "c")
	for name := range moved.ResourceProxy.Agents {
		if name.String() == "c" {
			moved.ResourceProxy.Agents[name] = mesh.Agent{Replica: address(t, "10.0.0.1:9091")}
		}
	}
	c.set(t, moved)
	if diff := cmp.Diff([]string{"c"}, names(e.receive())); diff != "" {
		t.Fatalf("an agent on another replica (-want +got):\n%s", diff)
	}

	// Another process, with the same state less one agent.
	other := startServer(t, xds.Config{})
	other.set(t, snapshot(t, []mesh.Key{one}, "b"))
	back := other.connect(t)
	back.ask(resourcev3.ScopedRouteType, map[string]string{"b": versions(first)["b"], "c": versions(second)["c"]})
	answer := back.receive()
	if diff := cmp.Diff([][]string{nil, {"c"}}, [][]string{names(answer), answer.GetRemovedResources()}); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
}

// A server that does not know the state yet says nothing, since silence is what makes
// Envoy keep what it has.
func TestServerIsSilentUntilItKnows(t *testing.T) {
	c := startServer(t, xds.Config{})
	answers := make(chan *discoveryv3.DeltaDiscoveryResponse, 1)
	go func() { // no connection comes about before the first state
		defer close(answers)
		ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
		defer cancel()
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(c.conn).DeltaAggregatedResources(ctx, grpc.WaitForReady(true))
		if err != nil {
			return
		}
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{
			Node: &corev3.Node{Id: xds.DefaultNodeID}, TypeUrl: resourcev3.ScopedRouteType,
			InitialResourceVersions: map[string]string{"b": "x"},
		}); err != nil {
			return
		}
		if r, err := stream.Recv(); err == nil {
			answers <- r
		}
	}()
	bad := snapshot(t, nil, "a")
	bad.ResourceProxy.Tokens.Issuer = ""
	if err := c.server.Set(bad); err == nil {
		t.Fatal("a snapshot without an issuer is served")
	}
	wait := time.NewTimer(200 * time.Millisecond) // far more than an answer takes
	defer wait.Stop()
	select {
	case r := <-answers:
		t.Fatalf("it says %v", r)
	case <-wait.C:
	}
	c.set(t, snapshot(t, nil, "a"))
	if r := <-answers; !slices.Equal(names(r), []string{"a"}) || !slices.Equal(r.GetRemovedResources(), []string{"b"}) {
		t.Errorf("after the first state it says %v", r)
	}
}

func TestServerAcknowledgements(t *testing.T) {
	one, two, three := key(t, "1"), key(t, "2"), key(t, "3")
	metrics := prometheus.NewRegistry()
	c := startServer(t, xds.Config{Metrics: metrics})
	c.set(t, snapshot(t, []mesh.Key{one}, "a"))
	c.expectKeys(t)
	a := c.connect(t)
	a.ask(resourcev3.ExtensionConfigType, nil)
	r := a.receive()
	c.expectKeys(t) // sent is not taken
	a.answer(r, "")
	c.expectKeys(t, "1")

	c.set(t, snapshot(t, []mesh.Key{one, two}, "a"))
	r = a.receive()
	a.answer(r, "no such curve")
	c.set(t, snapshot(t, []mesh.Key{one, three}, "a"))
	r = a.receive() // so the rejection has been read
	c.expectKeys(t, "1")
	a.answer(r, "")
	c.expectKeys(t, "1", "3")

	// A second Envoy counts as soon as it is there, and says itself what it has.
	b := c.connect(t)
	b.ask(resourcev3.ClusterType, nil)
	b.receive()
	c.expectKeys(t)
	b.ask(resourcev3.ExtensionConfigType, versions(r))
	c.expectKeys(t, "1", "3")

	// One that waits hears of it.
	_, changed := c.server.Acknowledged()
	c.set(t, snapshot(t, []mesh.Key{two, three}, "a"))
	a.answer(a.receive(), "")
	c.expectKeys(t, "3")
	select {
	case <-changed:
	default:
		t.Error("other keys are acknowledged, and nobody is told")
	}
	b.answer(b.receive(), "")
	c.expectKeys(t, "2", "3")

	a.hangUp()
	b.hangUp()
	c.expectKeys(t)
	c.stop()
	if n := count(t, metrics, "argomesh_xds_answers_total", "rejected"); n != 1 {
		t.Errorf("%v rejections are counted, want 1", n)
	}
	if log := c.log.String(); !strings.Contains(log, "no such curve") || !strings.Contains(log, `"level":"error"`) {
		t.Errorf("the log does not say what Envoy rejects:\n%s", log)
	}
}

func TestServerRefuses(t *testing.T) {
	metrics := prometheus.NewRegistry()
	c := startServer(t, xds.Config{Metrics: metrics, MaxStreams: 2})
	c.set(t, snapshot(t, nil, "a"))
	for name, tt := range map[string]struct {
		request *discoveryv3.DeltaDiscoveryRequest
		code    codes.Code
	}{
		"another node": {&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "x\n"}, TypeUrl: resourcev3.ClusterType}, codes.PermissionDenied},
		"no node":      {&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resourcev3.ClusterType}, codes.PermissionDenied},
		"secrets":      {&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: xds.DefaultNodeID}, TypeUrl: resourcev3.SecretType}, codes.InvalidArgument},
		"no type":      {&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: xds.DefaultNodeID}}, codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			e := c.connect(t)
			e.send(tt.request)
			if code := e.refused(); code != tt.code {
				t.Errorf("the stream ends with %s, want %s", code, tt.code)
			}
		})
	}
	t.Run("the form that is not incremental", func(t *testing.T) {
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(c.conn).StreamAggregatedResources(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.Unimplemented {
			t.Errorf("the stream ends with %v", err)
		}
	})
	t.Run("more streams than the limit", func(t *testing.T) {
		for range 2 {
			e := c.connect(t)
			e.ask(resourcev3.ClusterType, nil)
			e.receive()
		}
		e := c.connect(t)
		if code := e.refused(); code != codes.ResourceExhausted {
			t.Errorf("the stream ends with %s", code)
		}
		if n := count(t, metrics, "argomesh_xds_refused_streams_total", "limit"); n != 1 {
			t.Errorf("%v refusals are counted, want 1", n)
		}
		if n := count(t, metrics, "argomesh_xds_streams", ""); n != 2 {
			t.Errorf("%v streams are counted, want 2", n)
		}
	})
}

// count returns a metric, that with a label of this value if there is one.
func count(t *testing.T, from prometheus.Gatherer, name, value string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	total := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			matches := value == ""
			for _, l := range m.GetLabel() {
				matches = matches || l.GetValue() == value
			}
			if matches {
				total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return total
}

// One more agent among thousands.
func BenchmarkSetOneMore(b *testing.B) {
	s := benchmarkSnapshot(b, 5000)
	server, err := xds.New(xds.Config{Metrics: prometheus.NewRegistry()})
	if err != nil {
		b.Fatal(err)
	}
	if err := server.Set(s); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		proxy := *s.ResourceProxy
		proxy.Agents = maps.Clone(proxy.Agents)
		name, err := identity.ParseAgentName(fmt.Sprint("more-", i%2))
		if err != nil {
			b.Fatal(err)
		}
		proxy.Agents[name] = mesh.Agent{}
		next := s
		next.ResourceProxy = &proxy
		if err := server.Set(next); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkSnapshot(b *testing.B, n int) mesh.Snapshot {
	b.Helper()
	listen, err := mesh.ParseAddress("127.0.0.1:9090")
	if err != nil {
		b.Fatal(err)
	}
	all := make(map[identity.AgentName]mesh.Agent, n)
	for i := range n {
		name, err := identity.ParseAgentName(fmt.Sprint("edge-", i))
		if err != nil {
			b.Fatal(err)
		}
		all[name] = mesh.Agent{}
	}
	return mesh.Snapshot{
		Self: spiffeid.RequireFromString("spiffe://hub.test/principal"),
		ResourceProxy: &mesh.ResourceProxy{
			Listen: listen, Principal: listen, Agents: all, Tokens: mesh.Tokens{Issuer: "i", Audience: "a"},
		},
	}
}
