package xds

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// allBundles is SPIRE's name for the bundles of the own and of all federated trust
// domains, each good for its own SPIFFE IDs only.
const allBundles = "ALL"

// serverTLS presents the SVID and asks for no certificate.
func (p *encoder) serverTLS(self spiffeid.ID, alpn ...string) *corev3.TransportSocket {
	return p.downstreamTLS(&tlsv3.DownstreamTlsContext{CommonTlsContext: commonTLS(self, alpn)})
}

// mutualTLS presents the SVID and wants one of a trust domain whose bundle is held.
func (p *encoder) mutualTLS(self spiffeid.ID, alpn ...string) *corev3.TransportSocket {
	common := commonTLS(self, alpn)
	common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContextSdsSecretConfig{
		ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{Name: allBundles, SdsConfig: workloadSource()},
	}
	return p.downstreamTLS(&tlsv3.DownstreamTlsContext{
		CommonTlsContext:         common,
		RequireClientCertificate: wrapperspb.Bool(true),
		// A resumed session would show the certificate of an earlier one.
		SessionTicketKeysType:            &tlsv3.DownstreamTlsContext_DisableStatelessSessionResumption{DisableStatelessSessionResumption: true},
		DisableStatefulSessionResumption: true,
	})
}

func (p *encoder) downstreamTLS(context *tlsv3.DownstreamTlsContext) *corev3.TransportSocket {
	return &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: p.pack(context)},
	}
}

// peerTLS presents the SVID to one that must present the same SPIFFE ID.
func (p *encoder) peerTLS(self spiffeid.ID) *corev3.TransportSocket {
	common := commonTLS(self, nil)
	common.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{
		CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
			DefaultValidationContext: &tlsv3.CertificateValidationContext{
				MatchTypedSubjectAltNames: []*tlsv3.SubjectAltNameMatcher{{
					SanType: tlsv3.SubjectAltNameMatcher_URI, Matcher: exactly(self.String()),
				}},
			},
			ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{
				Name: self.TrustDomain().IDString(), SdsConfig: workloadSource(),
			},
		},
	}
	return &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: p.pack(&tlsv3.UpstreamTlsContext{CommonTlsContext: common})},
	}
}

func commonTLS(self spiffeid.ID, alpn []string) *tlsv3.CommonTlsContext {
	return &tlsv3.CommonTlsContext{
		TlsParams: &tlsv3.TlsParameters{
			TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
			TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
		},
		AlpnProtocols: alpn,
		TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{
			Name: self.String(), SdsConfig: workloadSource(),
		}},
	}
}

// workloadSource is the Workload API's secret discovery, which bootstrap gives a
// cluster. A listener waits for its certificate.
func workloadSource() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:  corev3.ApiVersion_V3,
		InitialFetchTimeout: off(),
		ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
			ApiType:             corev3.ApiConfigSource_GRPC,
			TransportApiVersion: corev3.ApiVersion_V3,
			GrpcServices: []*corev3.GrpcService{{
				TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: workloadCluster}},
			}},
		}},
	}
}
