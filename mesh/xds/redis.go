package xds

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	connectionlimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/connection_limit/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/argomesh/argomesh/mesh"
)

// redisListener passes bytes on: Envoy's own filter for Redis knows no subscriptions.
func (p *encoder) redisListener(s mesh.Snapshot) *listenerv3.Listener {
	limit := orDefault(s.Redis.MaxConnections, defaultMaxCallers)
	chain := &listenerv3.FilterChain{
		Name: redisName,
		Filters: []*listenerv3.Filter{
			p.networkFilter("limit", &connectionlimitv3.ConnectionLimit{
				StatPrefix: redisName, MaxConnections: wrapperspb.UInt64(uint64(limit)),
			}),
			p.networkFilter("tcp", &tcpproxyv3.TcpProxy{
				StatPrefix:       redisName,
				ClusterSpecifier: &tcpproxyv3.TcpProxy_Cluster{Cluster: redisCluster},
				IdleTimeout:      off(), // a subscription is quiet for hours
			}),
		},
	}
	if tls := p.redisTLS(s); tls != nil {
		chain.TransportSocket, chain.TransportSocketConnectTimeout = tls, durationpb.New(handshakeTimeout)
	}
	l := &listenerv3.Listener{
		Name: redisName, StatPrefix: redisName, Address: envoyAddress(s.Redis.Listen),
		PerConnectionBufferLimitBytes: u32(bufferLimit),
		FilterChains:                  []*listenerv3.FilterChain{chain},
	}
	if _, ok := s.Redis.Listen.TCP(); ok {
		l.TcpKeepalive = &corev3.TcpKeepalive{KeepaliveProbes: u32(4), KeepaliveTime: u32(60), KeepaliveInterval: u32(15)}
	}
	return l
}

// redisTLS is nil where a mesh has its own. Argo CD's client may be of a release that
// speaks TLS 1.2 only, which is left to files.
func (p *encoder) redisTLS(s mesh.Snapshot) *corev3.TransportSocket {
	switch s.Redis.TLS {
	case mesh.RedisTLSSVID:
		return p.serverTLS(s.Self)
	case mesh.RedisTLSFiles:
		file := func(name string) *corev3.DataSource {
			return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: name}}
		}
		return p.downstreamTLS(&tlsv3.DownstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{
			TlsParams: &tlsv3.TlsParameters{
				TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2, TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
			},
			TlsCertificates: []*tlsv3.TlsCertificate{{
				CertificateChain: file(s.Redis.CertificateFile), PrivateKey: file(s.Redis.KeyFile),
			}},
		}})
	}
	return nil
}

// redisCluster is the principal beside Envoy. Connections are bounded by the listener.
func (p *encoder) redisCluster(r mesh.Redis) *clusterv3.Cluster {
	address := envoyAddress(r.Principal)
	if pipe := address.GetPipe(); pipe != nil {
		pipe.Mode = 0 // it is somebody else's socket
	}
	limit := orDefault(r.MaxConnections, defaultMaxCallers)
	return &clusterv3.Cluster{
		Name:                          redisCluster,
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:                durationpb.New(connectTimeout),
		PerConnectionBufferLimitBytes: u32(bufferLimit),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: redisCluster,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address}},
			}}}},
		},
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
			MaxConnections: u32(limit), MaxPendingRequests: u32(limit), TrackRemaining: true,
		}}},
	}
}
