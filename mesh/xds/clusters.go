package xds

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/argomesh/argomesh/mesh"
)

const (
	connectTimeout = 5 * time.Second
	// defaultMaxRequests bounds the requests under way to one principal. Envoy's own
	// default is 1,024, which watches of a few spokes use up.
	defaultMaxRequests = 10_000
	// maxStreams bounds the gRPC streams under way to the principal: of 20,000
	// agents a connection, a tunnel in use and three spares.
	maxStreams = 100_000
	// upstreamIdle is how long a connection to the principal is kept without a
	// request. The principal keeps it longer, so that Envoy never takes one that is
	// just being closed.
	upstreamIdle = 30 * time.Second
	// bufferLimit is what Envoy reads ahead of a slow other side, in bytes per
	// connection or stream and direction.
	bufferLimit = 256 << 10
	// streamsPerConnection times bufferLimit is streamWindow: streams whose reader
	// stalls cannot stop the others of their connection.
	streamsPerConnection = 64
	streamWindow         = streamsPerConnection * bufferLimit
)

// httpCluster takes one request per HTTP/1.1 connection at a time, so that an upgrade
// is just bytes.
func (p *encoder) httpCluster(name string, to mesh.Address, maxRequests uint32) *clusterv3.Cluster {
	return p.requestCluster(name, to, maxRequests, &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
		ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
			HttpProtocolOptions: &corev3.Http1ProtocolOptions{},
		},
	})
}

// replicaCluster is another replica of the principal, which has the same SPIFFE ID.
func (p *encoder) replicaCluster(self spiffeid.ID, to mesh.Address, maxRequests uint32) *clusterv3.Cluster {
	c := p.httpCluster(replicaName(to), to, maxRequests)
	c.TransportSocket = p.peerTLS(self)
	return c
}

func (p *encoder) grpcCluster(name string, to mesh.Address) *clusterv3.Cluster {
	return p.requestCluster(name, to, maxStreams, &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
		ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
			Http2ProtocolOptions: &corev3.Http2ProtocolOptions{
				MaxConcurrentStreams:        u32(streamsPerConnection),
				InitialStreamWindowSize:     u32(bufferLimit),
				InitialConnectionWindowSize: u32(streamWindow),
			},
		},
	})
}

// requestCluster is the cluster of an upstream that takes requests, as many at a time.
func (p *encoder) requestCluster(name string, to mesh.Address, maxRequests uint32,
	protocol *httpv3.HttpProtocolOptions_ExplicitHttpConfig) *clusterv3.Cluster {
	c := cluster(name, to, &clusterv3.CircuitBreakers_Thresholds{
		// Requests are what is bounded. Were connections too, what is over the
		// limit would wait behind watches, for hours.
		MaxConnections:     u32(max(maxRequests, 2*maxRequests)), // the greater, when it overflows
		MaxPendingRequests: u32(maxRequests),
		MaxRequests:        u32(maxRequests),
		MaxRetries:         u32(0), // a request is sent once
		TrackRemaining:     true,
	})
	c.TypedExtensionProtocolOptions = map[string]*anypb.Any{
		httpProtocolOptions: p.pack(&httpv3.HttpProtocolOptions{
			CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{IdleTimeout: durationpb.New(upstreamIdle)},
			UpstreamProtocolOptions:   &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: protocol},
		}),
	}
	return c
}

// cluster is the cluster of one address.
func cluster(name string, to mesh.Address, bounds *clusterv3.CircuitBreakers_Thresholds) *clusterv3.Cluster {
	address := envoyAddress(to)
	if pipe := address.GetPipe(); pipe != nil {
		pipe.Mode = 0 // it is someone else's socket
	}
	return &clusterv3.Cluster{
		Name:                          name,
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:                durationpb.New(connectTimeout),
		PerConnectionBufferLimitBytes: u32(bufferLimit),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address}},
			}}}},
		},
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{bounds}},
	}
}

// httpProtocolOptions is where Envoy looks for the options above.
const httpProtocolOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
