package xds

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	downstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	heapv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/fixed_heap/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/argomesh/argomesh/mesh"
)

const (
	// DefaultNodeID names the Envoy beside a principal.
	DefaultNodeID = "argomesh-principal"
	// DefaultMemory is the heap an Envoy may have, in bytes.
	DefaultMemory = 1 << 30
	// DefaultMaxConnections bounds the connections of all listeners of an Envoy.
	DefaultMaxConnections = 30_000
	// MinMemory is the smallest heap that leaves room to serve, in bytes.
	MinMemory = 64 << 20

	xdsCluster      = "xds"
	workloadCluster = "workload_api"
	adminCluster    = "admin"
	statsName       = "stats"
	nodeCluster     = "argomesh"
)

// BootstrapConfig says how an Envoy starts. XDS, WorkloadAPI and Admin are required.
type BootstrapConfig struct {
	// NodeID is what Envoy says it is; the server wants its own Config.NodeID. Empty
	// means DefaultNodeID.
	NodeID string
	// XDS is where the principal serves xDS: a unix socket or a loopback address.
	XDS mesh.Address
	// WorkloadAPI is where SPIRE's agent serves its secrets: a unix socket or a
	// loopback address.
	WorkloadAPI mesh.Address
	// Admin is Envoy's own interface, which can stop it: a unix socket or a loopback
	// address.
	Admin mesh.Address
	// Stats serves /ready and /stats/prometheus of the admin interface, by GET, and
	// nothing else. Zero means that nothing serves them elsewhere.
	Stats mesh.Address
	// MaxMemory is the heap at which Envoy accepts nothing more, in bytes. Zero
	// means DefaultMemory; the least is MinMemory.
	MaxMemory uint64
	// MaxConnections bounds the connections of all listeners. Zero means
	// DefaultMaxConnections.
	MaxConnections uint32
}

func (c BootstrapConfig) validate() error {
	var problems []error
	for name, address := range map[string]mesh.Address{"xds": c.XDS, "workload api": c.WorkloadAPI, "admin": c.Admin} {
		if !address.IsLocal() {
			problems = append(problems,
				fmt.Errorf("bootstrap: the address of %s must be a unix socket or on loopback, not %q", name, address))
		}
	}
	if c.MaxMemory != 0 && c.MaxMemory < MinMemory {
		problems = append(problems,
			fmt.Errorf("bootstrap: %d bytes of memory are too few to serve: give %d or more", c.MaxMemory, MinMemory))
	}
	return errors.Join(problems...)
}

// Bootstrap returns the configuration with which Envoy starts; all else it gets from
// the principal.
func Bootstrap(cfg BootstrapConfig) (*bootstrapv3.Bootstrap, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	var p encoder
	b := &bootstrapv3.Bootstrap{
		Node:  &corev3.Node{Id: cmp.Or(cfg.NodeID, DefaultNodeID), Cluster: nodeCluster},
		Admin: &bootstrapv3.Admin{Address: adminAddress(cfg.Admin)},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{
			AdsConfig: &corev3.ApiConfigSource{
				ApiType:                   corev3.ApiConfigSource_DELTA_GRPC,
				TransportApiVersion:       corev3.ApiVersion_V3,
				SetNodeOnFirstMessageOnly: true,
				GrpcServices: []*corev3.GrpcService{{
					TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: xdsCluster}},
				}},
			},
			CdsConfig: adsSource(),
			LdsConfig: adsSource(),
		},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{
			Clusters: []*clusterv3.Cluster{p.controlCluster(xdsCluster, cfg.XDS),
				p.controlCluster(workloadCluster, cfg.WorkloadAPI)},
		},
		OverloadManager: p.overload(cmp.Or(cfg.MaxMemory, DefaultMemory), cmp.Or(cfg.MaxConnections, DefaultMaxConnections)),
		// No layer of the admin interface: what runs is what is written here.
		LayeredRuntime: &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{{
			Name:           "static",
			LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: &structpb.Struct{}},
		}}},
	}
	if !cfg.Stats.IsZero() {
		b.StaticResources.Clusters = append(b.StaticResources.Clusters, p.httpCluster(adminCluster, cfg.Admin, 16))
		b.StaticResources.Listeners = []*listenerv3.Listener{p.statsListener(cfg.Stats)}
	}
	return b, p.err
}

// adminAddress makes the socket the owner's alone: who can open it can stop Envoy.
func adminAddress(a mesh.Address) *corev3.Address {
	address := envoyAddress(a)
	if pipe := address.GetPipe(); pipe != nil {
		pipe.Mode = 0o600
	}
	return address
}

// controlCluster is gRPC to a neighbour in the pod. It is asked whether it is still
// there, so that a stream that hangs is opened again.
func (p *encoder) controlCluster(name string, to mesh.Address) *clusterv3.Cluster {
	address := envoyAddress(to)
	if pipe := address.GetPipe(); pipe != nil {
		pipe.Mode = 0
	}
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       durationpb.New(connectTimeout),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address}},
			}}}},
		},
		TypedExtensionProtocolOptions: map[string]*anypb.Any{
			httpProtocolOptions: p.pack(&httpv3.HttpProtocolOptions{
				UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
					ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
						Http2ProtocolOptions: &corev3.Http2ProtocolOptions{ConnectionKeepalive: peerKeepalive()},
					},
				}},
			}),
		},
	}
}

// overload sheds load before memory or descriptors run out: first connections are
// not kept, then requests refused, then connections. What is under way goes on;
// no timeout is shortened, since that would end watches.
func (p *encoder) overload(memory uint64, connections uint32) *overloadv3.OverloadManager {
	const heap = "envoy.resource_monitors.fixed_heap"
	monitor := func(name string, config proto.Message) *overloadv3.ResourceMonitor {
		return &overloadv3.ResourceMonitor{Name: name,
			ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: p.pack(config)}}
	}
	action := func(name string, share float64) *overloadv3.OverloadAction {
		return &overloadv3.OverloadAction{Name: name, Triggers: []*overloadv3.Trigger{{
			Name: heap, TriggerOneof: &overloadv3.Trigger_Threshold{Threshold: &overloadv3.ThresholdTrigger{Value: share}},
		}}}
	}
	return &overloadv3.OverloadManager{
		RefreshInterval: durationpb.New(250 * time.Millisecond),
		ResourceMonitors: []*overloadv3.ResourceMonitor{
			monitor(heap, &heapv3.FixedHeapConfig{MaxHeapSizeBytes: memory}),
			monitor("envoy.resource_monitors.global_downstream_max_connections",
				&downstreamv3.DownstreamConnectionsConfig{MaxActiveDownstreamConnections: int64(connections)}),
		},
		Actions: []*overloadv3.OverloadAction{
			action("envoy.overload_actions.shrink_heap", 0.85),
			action("envoy.overload_actions.disable_http_keepalive", 0.9),
			action("envoy.overload_actions.stop_accepting_requests", 0.95),
			// Closed at once: a caller that waits to be accepted would learn nothing.
			action("envoy.overload_actions.reject_incoming_connections", 0.98),
		},
	}
}

// statsListener lets kubelet and Prometheus ask what they must, and nothing else of
// the admin interface.
func (p *encoder) statsListener(at mesh.Address) *listenerv3.Listener {
	get := []*routev3.HeaderMatcher{{
		Name:                 ":method",
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: exactly("GET")},
	}}
	var routes []*routev3.Route
	for _, path := range []string{"/ready", "/stats/prometheus"} {
		routes = append(routes, &routev3.Route{
			Name:  path,
			Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: path}, Headers: get},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{
				ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: adminCluster},
			}},
		})
	}
	return &listenerv3.Listener{
		Name:       statsName,
		StatPrefix: statsName,
		Address:    envoyAddress(at),
		// It must answer when nothing else does.
		IgnoreGlobalConnLimit: true,
		BypassOverloadManager: true,
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{
			p.networkFilter("http", &hcmv3.HttpConnectionManager{
				StatPrefix:            statsName,
				RequestHeadersTimeout: durationpb.New(headersTimeout),
				StreamIdleTimeout:     durationpb.New(headersTimeout),
				CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{
					IdleTimeout: durationpb.New(connectionIdle),
				},
				RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
					Name:         statsName,
					VirtualHosts: []*routev3.VirtualHost{{Name: statsName, Domains: []string{"*"}, Routes: routes}},
				}},
				HttpFilters: []*hcmv3.HttpFilter{p.filter(routerFilter, &routerv3.Router{})},
			}),
		}}},
	}
}
