package xds

import (
	"encoding/json"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	rbacfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/go-jose/go-jose/v4"

	"github.com/argomesh/argomesh/mesh"
)

const (
	jwtType  = "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication"
	rbacType = "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC"
	// jwtMetadata is the namespace into which the filter writes claims, and
	// payloadKey our key in it.
	jwtMetadata = "envoy.filters.http.jwt_authn"
	payloadKey  = "payload"
	// rememberedTokens is the number of good tokens whose signature each of Envoy's
	// workers looks at once: a token comes with every call. Other keys are another
	// filter, which remembers none, and time counts each time.
	rememberedTokens = 8192
)

// tokens is the filter that validates tokens: every request needs a good one. It
// stays in the request, since the principal verifies it again. Without a key nothing
// passes; Envoy takes no empty key set, so another filter stands in.
func (p *encoder) tokens(t mesh.Tokens) *corev3.TypedExtensionConfig {
	if len(t.Keys) == 0 {
		return p.extension(tokensName, &rbacfilterv3.RBAC{
			Rules:           &rbacv3.RBAC{Action: rbacv3.RBAC_ALLOW}, // no one
			RulesStatPrefix: tokensName + ".",
		})
	}
	return p.extension(tokensName, &jwtv3.JwtAuthentication{
		StatPrefix: tokensName,
		Providers: map[string]*jwtv3.JwtProvider{tokensName: {
			Issuer:            t.Issuer,
			Audiences:         []string{t.Audience},
			RequireExpiration: true,
			ClockSkewSeconds:  uint32(t.Leeway / time.Second),
			JwtCacheConfig:    &jwtv3.JwtCacheConfig{JwtCacheSize: rememberedTokens},
			Forward:           true,
			// Naming the header takes away the other places, such as a query parameter.
			FromHeaders:       []*jwtv3.JwtHeader{{Name: "Authorization", ValuePrefix: "Bearer "}},
			PayloadInMetadata: payloadKey,
			JwksSourceSpecifier: &jwtv3.JwtProvider_LocalJwks{LocalJwks: &corev3.DataSource{
				Specifier: &corev3.DataSource_InlineString{InlineString: p.keySet(t.Keys)},
			}},
		}},
		Rules: []*jwtv3.RequirementRule{{
			Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			RequirementType: &jwtv3.RequirementRule_Requires{Requires: &jwtv3.JwtRequirement{
				RequiresType: &jwtv3.JwtRequirement_ProviderName{ProviderName: tokensName},
			}},
		}},
	})
}

// keySet is the JSON Web Key Set of the keys, in their order.
func (p *encoder) keySet(keys []mesh.Key) string {
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, k := range keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{KeyID: k.ID, Key: k.Public, Algorithm: string(jose.ES256), Use: "sig"})
	}
	encoded, err := json.Marshal(set)
	if err != nil && p.err == nil {
		p.err = err
	}
	return string(encoded)
}

// tokensFilter is the place of that filter in a listener. Its content comes by
// itself, so that new keys leave the listener as it is; until the first has come,
// the listener does not open, and Envoy answers 500 without it.
func tokensFilter() *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{
		Name: tokensName,
		ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: &corev3.ExtensionConfigSource{
			ConfigSource: adsSource(),
			TypeUrls:     []string{jwtType, rbacType},
		}},
	}
}
