package xds

import (
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	rbacfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/argomesh/argomesh/identity"
)

// agentsPrefix is before the agent's name in a path; Kubernetes' own path follows
// the name.
const agentsPrefix = "/agents/"

// agentScope is the route table of one agent: one route, which only a token with the
// agent's name as its subject may take. Whatever scope a request is given, it
// gets no further than to a route whose whole prefix is in its path.
func (p *encoder) agentScope(name identity.AgentName, cluster string) *routev3.ScopedRouteConfiguration {
	return &routev3.ScopedRouteConfiguration{
		Name: name.String(),
		Key: &routev3.ScopedRouteConfiguration_Key{Fragments: []*routev3.ScopedRouteConfiguration_Key_Fragment{{
			Type: &routev3.ScopedRouteConfiguration_Key_Fragment_StringKey{StringKey: name.String()},
		}}},
		RouteConfiguration: &routev3.RouteConfiguration{
			Name:                   name.String(),
			RequestHeadersToRemove: ownHeaders(),
			VirtualHosts: []*routev3.VirtualHost{{
				Name:    name.String(),
				Domains: []string{"*"},
				Routes: []*routev3.Route{{
					Name:   name.String(),
					Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: agentsPrefix + name.String() + "/"}},
					Action: forward(cluster),
					TypedPerFilterConfig: map[string]*anypb.Any{
						subjectFilter: p.pack(&rbacfilterv3.RBACPerRoute{Rbac: &rbacfilterv3.RBAC{Rules: onlySubject(name.String())}}),
					},
				}},
			}},
		},
	}
}

// scopeByAgent picks the scope by the second segment of the path. A path that has
// none, or no scope, has no route: 404.
func scopeByAgent() *hcmv3.HttpConnectionManager_ScopedRoutes {
	return &hcmv3.HttpConnectionManager_ScopedRoutes{ScopedRoutes: &hcmv3.ScopedRoutes{
		Name: "agents",
		ScopeKeyBuilder: &hcmv3.ScopedRoutes_ScopeKeyBuilder{Fragments: []*hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder{{
			Type: &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor_{
				HeaderValueExtractor: &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor{
					Name:             ":path",
					ElementSeparator: "/",
					ExtractType: &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor_Index{
						Index: 2, // "", "agents", name
					},
				},
			},
		}}},
		RdsConfigSource: adsSource(),
		ConfigSpecifier: &hcmv3.ScopedRoutes_ScopedRds{ScopedRds: &hcmv3.ScopedRds{ScopedRdsConfigSource: adsSource()}},
	}}
}

// forward sends to a cluster for as long as both sides want: a watch is quiet for
// hours, an exec is an upgrade.
func forward(cluster string) *routev3.Route_Route {
	return &routev3.Route_Route{Route: &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
		Timeout:          off(),
		IdleTimeout:      off(),
		MaxStreamDuration: &routev3.RouteAction_MaxStreamDuration{
			MaxStreamDuration: off(),
		},
	}}
}

// ownHeaders are what Envoy tells upstream of its own check of the caller, which
// no one there asks for. A function, since messages share no slice.
func ownHeaders() []string { return []string{"x-envoy-external-address", "x-envoy-internal"} }

// onlySubject allows requests whose token has exactly that subject. The claims come
// from the filter that validated the token, not from the request.
func onlySubject(subject string) *rbacv3.RBAC {
	return &rbacv3.RBAC{
		Action: rbacv3.RBAC_ALLOW,
		Policies: map[string]*rbacv3.Policy{"subject": {
			Permissions: []*rbacv3.Permission{{Rule: &rbacv3.Permission_Any{Any: true}}},
			Principals: []*rbacv3.Principal{{Identifier: &rbacv3.Principal_SourcedMetadata{SourcedMetadata: &rbacv3.SourcedMetadata{
				MetadataSource: rbacv3.MetadataSource_DYNAMIC,
				MetadataMatcher: &matcherv3.MetadataMatcher{
					Filter: jwtMetadata,
					Path: []*matcherv3.MetadataMatcher_PathSegment{
						{Segment: &matcherv3.MetadataMatcher_PathSegment_Key{Key: payloadKey}},
						{Segment: &matcherv3.MetadataMatcher_PathSegment_Key{Key: "sub"}},
					},
					Value: &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: exactly(subject)}},
				},
			}}}},
		}},
	}
}

// onlyPlain denies what could mean one thing here and another behind: a path with
// empty or dot segments, plain or encoded, or a backslash, and a method Kubernetes
// does not have. Encoded slashes never get this far.
func onlyPlain() *rbacv3.RBAC {
	anyone := []*rbacv3.Principal{{Identifier: &rbacv3.Principal_Any{Any: true}}}
	return &rbacv3.RBAC{
		Action: rbacv3.RBAC_DENY,
		Policies: map[string]*rbacv3.Policy{
			"path": {Principals: anyone,
				Permissions: []*rbacv3.Permission{{Rule: &rbacv3.Permission_UrlPath{UrlPath: &matcherv3.PathMatcher{
					Rule: &matcherv3.PathMatcher_Path{Path: matching(`[^/].*|.*(//|/(\.|%2[eE]){1,2}(/.*)?$|\\|%00).*`)},
				}}}}},
			"method": {Principals: anyone,
				Permissions: []*rbacv3.Permission{{Rule: &rbacv3.Permission_NotRule{NotRule: &rbacv3.Permission{
					Rule: &rbacv3.Permission_Header{Header: &routev3.HeaderMatcher{
						Name: ":method",
						HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
							StringMatch: matching("GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS"),
						},
					}},
				}}}}},
		},
	}
}
