package xds

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/argomesh/argomesh/mesh"
)

// redisListener passes bytes on: Envoy's own filter for Redis knows no subscriptions.
func (p *encoder) redisListener(s mesh.Snapshot) *listenerv3.Listener {
	return p.listener(redisName, s.Redis.Listen, orDefault(s.Redis.MaxConnections, defaultMaxCallers), p.redisTLS(s),
		p.networkFilter("tcp", &tcpproxyv3.TcpProxy{
			StatPrefix:       redisName,
			ClusterSpecifier: &tcpproxyv3.TcpProxy_Cluster{Cluster: redisCluster},
			IdleTimeout:      off(), // a subscription is quiet for hours
		}))
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

// principalRedis is the principal beside Envoy. Connections are bounded by the listener.
func principalRedis(r mesh.Redis) *clusterv3.Cluster {
	limit := orDefault(r.MaxConnections, defaultMaxCallers)
	return cluster(redisCluster, r.Principal, &clusterv3.CircuitBreakers_Thresholds{
		MaxConnections: u32(limit), MaxPendingRequests: u32(limit), TrackRemaining: true,
	})
}
