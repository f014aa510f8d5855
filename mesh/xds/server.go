package xds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	deltav3 "github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
)

const (
	defaultMaxStreams = 4
	// maxConnections bounds open connections; more wait to be accepted.
	maxConnections = 16
	// maxRequestBytes is the longest request read: an Envoy that comes back names
	// every resource it has, of which the agents' are 150 bytes each.
	maxRequestBytes = 8 << 20
)

// typeNames are the types that are served, as metrics and logs name them.
var typeNames = map[string]string{
	resourcev3.ListenerType:        "listener",
	resourcev3.ClusterType:         "cluster",
	resourcev3.ScopedRouteType:     "route",
	resourcev3.ExtensionConfigType: "extension",
}

// Config holds what a Server needs. Fields without a stated default are required.
type Config struct {
	// NodeID is the one Envoy that is served, as it names itself in its bootstrap.
	// Empty means DefaultNodeID. It is no secret: who may open the socket is told
	// by the socket's mode.
	NodeID string
	// MaxStreams bounds the streams at a time; more are refused. It is more than one,
	// since an Envoy that restarts may be there before its old stream is found
	// dead. Zero means 4.
	MaxStreams int
	Metrics    prometheus.Registerer
	Log        zerolog.Logger
}

// Server serves Envoy's resources by delta ADS. Its methods may be called at any time,
// from several goroutines.
type Server struct {
	nodeID     string
	maxStreams int
	metrics    *metrics
	log        zerolog.Logger
	caches     map[string]*cachev3.LinearCache // by type; the map is never changed
	acks       acknowledgements
	first      chan struct{} // closed by the first Set

	set    sync.Mutex                   // held by Set; guards what follows
	shared map[string]map[string]string // what is served beside agents: versions by type and name
	agents map[identity.AgentName]mesh.Agent
}

// New checks cfg and starts nothing.
func New(cfg Config) (*Server, error) {
	if cfg.Metrics == nil {
		return nil, errors.New("xds server: metrics are required")
	}
	if cfg.MaxStreams < 0 {
		return nil, fmt.Errorf("xds server: %d streams are too few", cfg.MaxStreams)
	}
	m, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("xds server: %w", err)
	}
	s := &Server{
		nodeID:     cmp.Or(cfg.NodeID, DefaultNodeID),
		maxStreams: cmp.Or(cfg.MaxStreams, defaultMaxStreams),
		metrics:    m, log: cfg.Log,
		caches: make(map[string]*cachev3.LinearCache, len(typeNames)),
		acks:   newAcknowledgements(),
		first:  make(chan struct{}),
		shared: make(map[string]map[string]string, len(typeNames)),
		agents: map[identity.AgentName]mesh.Agent{},
	}
	for url := range typeNames {
		s.caches[url] = cachev3.NewLinearCache(url)
	}
	return s, nil
}

// Set replaces all that is served, and sends Envoy what is new in it: an agent that is
// added is one resource, whatever the number of agents. Until the first Set nothing
// is served, so that an Envoy which outlived a principal keeps what it has. On an
// error what was served before stays.
func (s *Server) Set(snapshot mesh.Snapshot) error {
	s.set.Lock()
	defer s.set.Unlock()
	shared, err := renderShared(snapshot)
	if err != nil {
		return err
	}
	var (
		agents map[identity.AgentName]mesh.Agent
		routes = map[string]types.Resource{}
		gone   []string
	)
	if snapshot.ResourceProxy != nil {
		agents = snapshot.ResourceProxy.Agents
		s.acks.rendered(tokensVersion(shared), keyIDs(snapshot.ResourceProxy.Tokens))
	}
	for name, agent := range agents {
		if served, ok := s.agents[name]; ok && served == agent {
			continue
		}
		scope, err := renderAgent(name, agent)
		if err != nil {
			return err
		}
		routes[scope.GetName()] = scope
	}
	for name := range s.agents {
		if _, ok := agents[name]; !ok {
			gone = append(gone, name.String())
		}
	}
	// A cluster comes before the routes to it and goes after them.
	clusters, unused := s.diff(resourcev3.ClusterType, resourcesOf(shared.Clusters))
	extensions, oldExtensions := s.diff(resourcev3.ExtensionConfigType, resourcesOf(shared.Extensions))
	listeners, oldListeners := s.diff(resourcev3.ListenerType, resourcesOf(shared.Listeners))
	if err := errors.Join(
		s.update(resourcev3.ClusterType, clusters, nil),
		s.update(resourcev3.ExtensionConfigType, extensions, nil),
		s.update(resourcev3.ScopedRouteType, routes, gone),
		s.update(resourcev3.ListenerType, listeners, oldListeners),
		s.update(resourcev3.ExtensionConfigType, nil, oldExtensions),
		s.update(resourcev3.ClusterType, nil, unused),
	); err != nil {
		return fmt.Errorf("xds server: %w", err)
	}
	s.agents = maps.Clone(agents)
	for url, name := range typeNames {
		s.metrics.resources.WithLabelValues(name).Set(float64(s.caches[url].NumResources()))
	}
	select {
	case <-s.first:
	default:
		close(s.first)
	}
	return nil
}

// diff compares what is to be served of a type with what is. The caller holds set.
func (s *Server) diff(url string, want map[string]types.Resource) (changed map[string]types.Resource, gone []string) {
	have, versions := s.shared[url], make(map[string]string, len(want))
	changed = map[string]types.Resource{}
	for name, resource := range want {
		versions[name] = version(resource)
		if have[name] != versions[name] {
			changed[name] = resource
		}
	}
	for name := range have {
		if _, ok := want[name]; !ok {
			gone = append(gone, name)
		}
	}
	s.shared[url] = versions
	return changed, gone
}

func (s *Server) update(url string, changed map[string]types.Resource, gone []string) error {
	if len(changed) == 0 && len(gone) == 0 {
		return nil
	}
	return s.caches[url].UpdateResources(changed, gone)
}

type named interface {
	proto.Message
	GetName() string
}

func resourcesOf[R named](all []R) map[string]types.Resource {
	named := make(map[string]types.Resource, len(all))
	for _, r := range all {
		named[r.GetName()] = r
	}
	return named
}

// version is that of a resource on the wire: of the same content it is the same, also
// of another process, so that an Envoy which comes back is sent only what is new.
func version(resource types.Resource) string {
	encoded, err := cachev3.MarshalResource(resource)
	if err != nil {
		return "" // what cannot be encoded is refused when it is sent
	}
	return cachev3.HashResource(encoded)
}

// Run serves on l until ctx is done, from the first Set on. It closes l in every case
// and is called once. Envoy keeps what it has.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	select {
	case <-s.first:
	case <-ctx.Done():
		return l.Close()
	}
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxRequestBytes),
		grpc.MaxConcurrentStreams(uint32(s.maxStreams)+1), // one more, which is told why it is refused
		grpc.ConnectionTimeout(10*time.Second),
		grpc.WaitForHandlers(true), // when it stops, so that nothing of it outlives Run
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, &ads{delta: deltav3.NewServer(ctx, s.mux(), s)})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := server.Serve(netutil.LimitListener(l, maxConnections)); err != nil &&
			!errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("xds server: serve: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		server.Stop() // streams never end by themselves, so there is nothing to wait for
		return nil
	})
	s.log.Info().Stringer("listener", l.Addr()).Msg("xDS is being served")
	return g.Wait()
}

func (s *Server) mux() *cachev3.MuxCache {
	mux := &cachev3.MuxCache{
		ClassifyDelta: func(r *cachev3.DeltaRequest) string { return r.GetTypeUrl() },
		Caches:        make(map[string]cachev3.Cache, len(s.caches)),
	}
	for url, cache := range s.caches {
		mux.Caches[url] = cache
	}
	return mux
}

// ads serves the incremental form of ADS only.
type ads struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	delta deltav3.Server
}

// DeltaAggregatedResources implements the service.
func (a *ads) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return a.delta.DeltaStreamHandler(stream, resourcev3.AnyType)
}

// OnDeltaStreamOpen implements deltav3.Callbacks.
func (s *Server) OnDeltaStreamOpen(_ context.Context, id int64, _ string) error {
	n, ok := s.acks.open(id, s.maxStreams)
	s.metrics.streams.Set(float64(n))
	if !ok {
		s.metrics.refused.WithLabelValues("limit").Inc()
		s.log.Warn().Int("limit", s.maxStreams).Msg("Envoy refused, since too many are connected")
		return status.Error(codes.ResourceExhausted, "too many Envoys are connected")
	}
	return nil
}

// OnDeltaStreamClosed implements deltav3.Callbacks.
func (s *Server) OnDeltaStreamClosed(id int64, node *corev3.Node) {
	n, known := s.acks.closed(id)
	s.metrics.streams.Set(float64(n))
	if known {
		s.log.Info().Int64("connection", id).Str("node", node.GetId()).Msg("Envoy disconnected")
	}
}

// OnStreamDeltaRequest implements deltav3.Callbacks.
func (s *Server) OnStreamDeltaRequest(id int64, r *discoveryv3.DeltaDiscoveryRequest) error {
	if !s.acks.begun(id) {
		if node := r.GetNode().GetId(); node != s.nodeID {
			s.metrics.refused.WithLabelValues("node").Inc()
			s.log.Warn().Str("node", printable(node)).Msg("Envoy refused, since it is of another node")
			return status.Errorf(codes.PermissionDenied, "this server serves node %q only", s.nodeID)
		}
		s.acks.begin(id)
		s.log.Info().Int64("connection", id).Msg("Envoy connected")
	}
	name, served := typeNames[r.GetTypeUrl()]
	if !served {
		s.metrics.refused.WithLabelValues("type").Inc()
		return status.Error(codes.InvalidArgument, "a resource of that type is not served here")
	}
	switch {
	case r.GetErrorDetail() != nil:
		s.metrics.answers.WithLabelValues(name, "rejected").Inc()
		s.log.Error().Str("resource", name).Str("error", r.GetErrorDetail().GetMessage()).
			Msg("Envoy rejected an update and keeps what it had")
	case r.GetResponseNonce() != "":
		s.metrics.answers.WithLabelValues(name, "acknowledged").Inc()
	}
	if r.GetTypeUrl() == resourcev3.ExtensionConfigType {
		s.acks.answered(id, r.GetResponseNonce(), r.GetErrorDetail() == nil, r.GetInitialResourceVersions()[tokensName])
	}
	return nil
}

// OnStreamDeltaResponse implements deltav3.Callbacks.
func (s *Server) OnStreamDeltaResponse(id int64, _ *discoveryv3.DeltaDiscoveryRequest,
	r *discoveryv3.DeltaDiscoveryResponse) {
	s.metrics.bytes.WithLabelValues(typeNames[r.GetTypeUrl()]).Add(float64(proto.Size(r)))
	if r.GetTypeUrl() != resourcev3.ExtensionConfigType {
		return
	}
	for _, resource := range r.GetResources() {
		if resource.GetName() == tokensName {
			s.acks.sent(id, r.GetNonce(), resource.GetVersion())
		}
	}
}

// printable cuts what a stranger says to what a log line can bear.
func printable(s string) string {
	const most = 100
	if len(s) > most {
		s = s[:most]
	}
	return fmt.Sprintf("%+q", s)
}
