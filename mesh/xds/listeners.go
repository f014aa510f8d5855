package xds

import (
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	rbacfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	connectionlimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/connection_limit/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/argomesh/argomesh/mesh"
)

const (
	defaultMaxCallers = 10_000
	defaultMaxAgents  = 20_000
	// headersTimeout bounds how long a request's headers may take.
	headersTimeout = 10 * time.Second
	// handshakeTimeout bounds TLS.
	handshakeTimeout = 10 * time.Second
	// connectionIdle is how long a connection of a caller is kept without requests, and agentIdle one of an agent,
	// which always has a call: who holds connections and says nothing keeps others out.
	connectionIdle = 2 * time.Minute
	agentIdle      = 30 * time.Second
	// flushTimeout bounds how long the rest of an answer waits for its reader once
	// the upstream is done.
	flushTimeout = time.Minute
	// maxHeadersKiB and maxHeaders bound the headers of one request: tokens and
	// impersonated groups fit, more is 431.
	maxHeadersKiB = 64
	maxHeaders    = 200
	// callerStreams bounds the requests on one HTTP/2 connection of a caller; client
	// libraries open another connection for more.
	callerStreams = 1_000
	// callerWindow bounds what Envoy holds of all uploads of one HTTP/2 connection.
	callerWindow = 16 * bufferLimit
	// agentStreams bounds the gRPC streams on one connection of an agent, which has
	// 64 tunnels on each.
	agentStreams = 100
)

// resourceProxyListener is HTTPS for callers that show a token.
func (p *encoder) resourceProxyListener(s mesh.Snapshot) *listenerv3.Listener {
	manager := p.manager(resourceProxyName)
	manager.CodecType = hcmv3.HttpConnectionManager_AUTO
	manager.RouteSpecifier = scopeByAgent()
	manager.Http2ProtocolOptions = &corev3.Http2ProtocolOptions{
		MaxConcurrentStreams:        u32(callerStreams),
		InitialStreamWindowSize:     u32(bufferLimit),
		InitialConnectionWindowSize: u32(callerWindow),
		ConnectionKeepalive:         peerKeepalive(),
	}
	// A path reaches the principal exactly as it came, and only if it has one
	// meaning: nothing is normalized, merged or decoded.
	manager.NormalizePath = wrapperspb.Bool(false)
	manager.MergeSlashes = false
	manager.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_REJECT_REQUEST
	manager.UpgradeConfigs = []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"},
		{UpgradeType: "SPDY/3.1"}}
	manager.ForwardClientCertDetails = hcmv3.HttpConnectionManager_SANITIZE
	manager.LocalReplyConfig = statusReplies()
	manager.HttpFilters = []*hcmv3.HttpFilter{
		p.filter(plainFilter, &rbacfilterv3.RBAC{Rules: onlyPlain(), RulesStatPrefix: plainFilter + "."}),
		tokensFilter(),
		// Its rules are those of the route. Without a route there is nowhere to go.
		p.filter(subjectFilter, &rbacfilterv3.RBAC{RulesStatPrefix: subjectFilter + "."}),
		// Behind what asks for the token, so that no one else uses up an agent's rate.
		p.filter(rateFilter, agentRate(orRate(s.ResourceProxy.AgentRate, defaultAgentRate))),
		p.filter(routerFilter, &routerv3.Router{SuppressEnvoyHeaders: true}),
	}
	proxy := s.ResourceProxy
	return p.httpListener(resourceProxyName, proxy.Listen, orDefault(proxy.MaxConnections, defaultMaxCallers),
		manager, p.serverTLS(s.Self, "h2", "http/1.1"))
}

// streamListener is gRPC over mutual TLS for agents. The certificate that the agent
// proved goes to the principal, which decides.
func (p *encoder) streamListener(s mesh.Snapshot) *listenerv3.Listener {
	manager := p.manager(streamName)
	manager.CodecType = hcmv3.HttpConnectionManager_HTTP2
	manager.CommonHttpProtocolOptions.IdleTimeout = durationpb.New(agentIdle)
	manager.Http2ProtocolOptions = &corev3.Http2ProtocolOptions{
		MaxConcurrentStreams:        u32(agentStreams),
		InitialStreamWindowSize:     u32(bufferLimit),
		InitialConnectionWindowSize: u32(streamWindow),
		ConnectionKeepalive:         peerKeepalive(),
	}
	// What an agent says about itself is dropped, what it proved is put there.
	manager.ForwardClientCertDetails = hcmv3.HttpConnectionManager_SANITIZE_SET
	if s.Stream.BehindGateway {
		// What was proved here comes last, no matter who it is: the principal reads from there.
		manager.ForwardClientCertDetails = hcmv3.HttpConnectionManager_APPEND_FORWARD
		manager.EarlyHeaderMutationExtensions = p.strip(stripped(forwardedOfOthers()...))
	}
	manager.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{Cert: true, Uri: true}
	var routes []*routev3.Route
	for _, service := range s.Stream.Services {
		routes = append(routes, &routev3.Route{
			Name:   service,
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/" + service + "/"}},
			Action: forward(streamCluster),
		})
	}
	manager.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
		Name:                   streamName,
		RequestHeadersToRemove: ownHeaders(),
		VirtualHosts:           []*routev3.VirtualHost{{Name: streamName, Domains: []string{"*"}, Routes: routes}},
	}}
	if !s.Stream.BehindGateway {
		manager.HttpFilters = append(manager.HttpFilters,
			p.filter(rateFilter, connectionRate(orRate(s.Stream.CallRate, defaultCallRate))))
	}
	manager.HttpFilters = append(manager.HttpFilters, p.filter(routerFilter, &routerv3.Router{SuppressEnvoyHeaders: true}))
	return p.httpListener(streamName, s.Stream.Listen, orDefault(s.Stream.MaxConnections, defaultMaxAgents),
		manager, p.mutualTLS(s.Self, "h2"))
}

// manager is what both HTTP connection managers have in common: no timeout ends
// what is under way, a limit on everything else, nothing believed that a caller
// says about where it comes from.
func (p *encoder) manager(name string) *hcmv3.HttpConnectionManager {
	return &hcmv3.HttpConnectionManager{
		StatPrefix: name,
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{
			IdleTimeout:     durationpb.New(connectionIdle),
			MaxHeadersCount: u32(maxHeaders),
		},
		MaxRequestHeadersKb:        u32(maxHeadersKiB),
		RequestHeadersTimeout:      durationpb.New(headersTimeout),
		RequestTimeout:             off(),
		StreamIdleTimeout:          off(),
		StreamFlushTimeout:         durationpb.New(flushTimeout),
		ServerHeaderTransformation: hcmv3.HttpConnectionManager_PASS_THROUGH,
		UseRemoteAddress:           wrapperspb.Bool(true),
		// No caller is trusted more than another. Empty would mean all of them, so it
		// is one address that no caller has.
		InternalAddressConfig: &hcmv3.HttpConnectionManager_InternalAddressConfig{
			CidrRanges: []*corev3.CidrRange{{AddressPrefix: "255.255.255.255", PrefixLen: u32(32)}},
		},
		EarlyHeaderMutationExtensions: p.strip(stripped(beginning("x-forwarded-"))),
		AccessLog:                     []*accesslogv3.AccessLog{p.accessLog()},
	}
}

// strip removes headers before anything looks at them.
func (p *encoder) strip(names []*matcherv3.StringMatcher) []*corev3.TypedExtensionConfig {
	mutations := make([]*mutationv3.HeaderMutation, 0, len(names))
	for _, name := range names {
		mutations = append(mutations, &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_RemoveOnMatch_{
			RemoveOnMatch: &mutationv3.HeaderMutation_RemoveOnMatch{KeyMatcher: name},
		}})
	}
	return []*corev3.TypedExtensionConfig{p.extension("strip", &earlyv3.HeaderMutation{Mutations: mutations})}
}

// stripped are the headers that only a proxy may set, with those of x-forwarded that
// are given; Envoy then sets its own. The trace context stays.
func stripped(forwarded ...*matcherv3.StringMatcher) []*matcherv3.StringMatcher {
	names := append([]*matcherv3.StringMatcher{beginning("x-envoy-")}, forwarded...)
	return append(names, beginning("x-remote-"), exactly("forwarded"), exactly("x-real-ip"), exactly("x-request-id"))
}

// forwardedOfOthers are those that Envoy acts on, but for x-forwarded-client-cert,
// which the principal checks. No one behind Envoy reads any other.
func forwardedOfOthers() []*matcherv3.StringMatcher {
	var names []*matcherv3.StringMatcher
	for _, name := range []string{"for", "host", "port", "proto"} {
		names = append(names, exactly("x-forwarded-"+name))
	}
	return names
}

// httpListener is a listener for HTTP over TLS.
func (p *encoder) httpListener(name string, at mesh.Address, maxConnections uint32,
	manager *hcmv3.HttpConnectionManager, tls *corev3.TransportSocket) *listenerv3.Listener {
	return p.listener(name, at, maxConnections, tls, p.networkFilter("http", manager))
}

// listener is a listener with bounded connections; without TLS when that is nil.
func (p *encoder) listener(name string, at mesh.Address, maxConnections uint32, tls *corev3.TransportSocket,
	filter *listenerv3.Filter) *listenerv3.Listener {
	chain := &listenerv3.FilterChain{
		Name: name,
		Filters: []*listenerv3.Filter{
			p.networkFilter("limit", &connectionlimitv3.ConnectionLimit{
				StatPrefix: name, MaxConnections: wrapperspb.UInt64(uint64(maxConnections)),
			}),
			filter,
		},
	}
	if tls != nil {
		chain.TransportSocket, chain.TransportSocketConnectTimeout = tls, durationpb.New(handshakeTimeout)
	}
	l := &listenerv3.Listener{
		Name:                          name,
		StatPrefix:                    name,
		Address:                       envoyAddress(at),
		PerConnectionBufferLimitBytes: u32(bufferLimit),
		FilterChains:                  []*listenerv3.FilterChain{chain},
	}
	if _, ok := at.TCP(); ok {
		// A caller that is gone without a word is found out within two minutes.
		l.TcpKeepalive = &corev3.TcpKeepalive{
			KeepaliveProbes: u32(4), KeepaliveTime: u32(60), KeepaliveInterval: u32(15),
		}
	}
	return l
}
