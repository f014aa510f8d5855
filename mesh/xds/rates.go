package xds

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	localratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/local_ratelimit/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/argomesh/argomesh/mesh"
)

const (
	// defaultAgentRate is how many requests for one agent may begin in a second. They cost
	// Envoy less than one of its two workers, and are twice what 100 callers without pause
	// bring about (docs/benchmarks.md, T7).
	defaultAgentRate = 10_000
	// defaultCallRate is how many gRPC calls may begin on one connection of an agent in a
	// second: it has agentStreams at a time, and opens few again.
	defaultCallRate = 200
)

func orRate(r mesh.Rate, otherwise uint32) mesh.Rate {
	r.Count = orDefault(r.Count, otherwise)
	if r.Per == 0 {
		r.Per = time.Second
	}
	return r
}

// localRate refuses with 429 what begins beyond a rate; to gRPC that is UNAVAILABLE, upon
// which an agent tries again with its back-off. Envoy counts by itself: no service
// is asked. How many were refused is in its statistics, http_local_rate_limit.rate_limited.
func localRate(r mesh.Rate) *localratelimitv3.LocalRateLimit {
	always := &corev3.RuntimeFractionalPercent{DefaultValue: &typev3.FractionalPercent{Numerator: 100}}
	return &localratelimitv3.LocalRateLimit{
		StatPrefix: rateFilter,
		TokenBucket: &typev3.TokenBucket{MaxTokens: r.Count, TokensPerFill: u32(r.Count),
			FillInterval: durationpb.New(r.Per)},
		FilterEnabled:  always,
		FilterEnforced: always,
	}
}

// agentRate is localRate for each agent by itself. A bucket is made when someone calls
// the agent, whose name is the subject of the token: one in the configuration of each
// agent's route would take 1.5 KiB of Envoy's memory, beside 7.4 KiB of the route.
func agentRate(r mesh.Rate) *localratelimitv3.LocalRateLimit {
	const agent = "agent"
	limit := localRate(r) // for who has no subject: no one gets this far without one
	limit.AlwaysConsumeDefaultTokenBucket = wrapperspb.Bool(false)
	limit.MaxDynamicDescriptors = u32(mesh.MaxAgents)
	limit.RateLimits = []*routev3.RateLimit{{Actions: []*routev3.RateLimit_Action{{
		ActionSpecifier: &routev3.RateLimit_Action_Metadata{Metadata: &routev3.RateLimit_Action_MetaData{
			DescriptorKey: agent,
			Source:        routev3.RateLimit_Action_MetaData_DYNAMIC,
			MetadataKey: &metadatav3.MetadataKey{Key: jwtMetadata, Path: []*metadatav3.MetadataKey_PathSegment{
				{Segment: &metadatav3.MetadataKey_PathSegment_Key{Key: payloadKey}},
				{Segment: &metadatav3.MetadataKey_PathSegment_Key{Key: "sub"}},
			}},
		}},
	}}}}
	limit.Descriptors = []*ratelimitv3.LocalRateLimitDescriptor{{
		Entries:     []*ratelimitv3.RateLimitDescriptor_Entry{{Key: agent}}, // of any value
		TokenBucket: limit.GetTokenBucket(),
	}}
	return limit
}

// connectionRate is localRate for each connection by itself.
func connectionRate(r mesh.Rate) *localratelimitv3.LocalRateLimit {
	limit := localRate(r)
	limit.LocalRateLimitPerDownstreamConnection = true
	return limit
}
