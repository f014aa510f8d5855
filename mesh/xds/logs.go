package xds

import (
	"net/http"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	streamlogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// accessLog writes a line of JSON per request to standard output. It names who and
// what, and has no token, no other header of the caller's choice and no query,
// which may hold the command of an exec.
func (p *encoder) accessLog() *accesslogv3.AccessLog {
	return &accesslogv3.AccessLog{
		Name: "envoy.access_loggers.stdout",
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: p.pack(&streamlogv3.StdoutAccessLog{
			AccessLogFormat: &streamlogv3.StdoutAccessLog_LogFormat{LogFormat: &corev3.SubstitutionFormatString{
				OmitEmptyValues: true,
				Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: p.object(map[string]any{
					"time":           "%START_TIME(%Y-%m-%dT%H:%M:%S.%3fZ)%",
					"listener":       "%DOWNSTREAM_LOCAL_ADDRESS%",
					"peer":           "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS%",
					"peer_spiffe_id": "%DOWNSTREAM_PEER_URI_SAN%",
					"method":         "%REQ(:METHOD)%",
					"path":           "%PATH(NQ:PATH)%",
					"protocol":       "%PROTOCOL%",
					"upgrade":        "%REQ(UPGRADE):16%",
					"subject":        "%DYNAMIC_METADATA(" + jwtMetadata + ":" + payloadKey + ":sub)%",
					"token":          "%DYNAMIC_METADATA(" + jwtMetadata + ":" + payloadKey + ":jti)%",
					"user":           "%DYNAMIC_METADATA(" + jwtMetadata + ":" + payloadKey + ":username)%",
					"route":          "%ROUTE_NAME%",
					"cluster":        "%UPSTREAM_CLUSTER%",
					"status":         "%RESPONSE_CODE%",
					"details":        "%RESPONSE_CODE_DETAILS%",
					"flags":          "%RESPONSE_FLAGS%",
					"grpc_status":    "%GRPC_STATUS%",
					"bytes_received": "%BYTES_RECEIVED%",
					"bytes_sent":     "%BYTES_SENT%",
					"duration_ms":    "%DURATION%",
					"request_id":     "%REQ(X-REQUEST-ID)%",
					"traceparent":    "%REQ(TRACEPARENT):64%",
				})},
			}},
		})},
	}
}

// statusReplies makes every refusal of Envoy's own a Kubernetes Status that says who
// refused and by which rule. What the principal answers passes as it is.
func statusReplies() *hcmv3.LocalReplyConfig {
	var p encoder // constants: nothing that cannot be encoded
	config := &hcmv3.LocalReplyConfig{BodyFormat: p.status("InternalError", envoysWords)}
	for _, known := range []struct {
		code    uint32
		reason  string // as Kubernetes' metav1.StatusReason
		message string
	}{
		{http.StatusBadRequest, "BadRequest", envoysWords},
		{http.StatusUnauthorized, "Unauthorized", envoysWords},
		{http.StatusForbidden, "Forbidden", "the token is not for this agent, or the path not one of an agent"},
		{http.StatusNotFound, "NotFound", "no agent of this name is served: it is not registered, or suspended"},
		{http.StatusRequestTimeout, "Timeout", envoysWords},
		{http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", envoysWords},
		{http.StatusTooManyRequests, "TooManyRequests", "more requests for this agent than it has a rate for: try again"},
		{http.StatusRequestHeaderFieldsTooLarge, "BadRequest", envoysWords},
		{http.StatusBadGateway, "ServiceUnavailable", envoysWords},
		{http.StatusServiceUnavailable, "ServiceUnavailable", envoysWords},
		{http.StatusGatewayTimeout, "Timeout", envoysWords},
	} {
		config.Mappers = append(config.Mappers, &hcmv3.ResponseMapper{
			Filter: &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_StatusCodeFilter{
				StatusCodeFilter: &accesslogv3.StatusCodeFilter{Comparison: &accesslogv3.ComparisonFilter{
					Op:    accesslogv3.ComparisonFilter_EQ,
					Value: &corev3.RuntimeUInt32{DefaultValue: known.code, RuntimeKey: "argomesh.unset"},
				}},
			}},
			BodyFormatOverride: p.status(known.reason, known.message),
		})
	}
	return config
}

// envoysWords are what Envoy says of its own reply.
const envoysWords = "%LOCAL_REPLY_BODY%"

func (p *encoder) status(reason, message string) *corev3.SubstitutionFormatString {
	return &corev3.SubstitutionFormatString{
		Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: p.object(map[string]any{
			"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{},
			"status": "Failure", "reason": reason, "code": "%RESPONSE_CODE%",
			"message": "refused by the hub's front door: " + message + " (%RESPONSE_CODE_DETAILS%)",
		})},
	}
}

func (p *encoder) object(fields map[string]any) *structpb.Struct {
	object, err := structpb.NewStruct(fields)
	if err != nil && p.err == nil {
		p.err = err
	}
	return object
}

// filter is a filter of HTTP requests.
func (p *encoder) filter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: p.pack(config)}}
}

// networkFilter is a filter of connections.
func (p *encoder) networkFilter(name string, config proto.Message) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: p.pack(config)}}
}
