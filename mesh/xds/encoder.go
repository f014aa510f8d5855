package xds

import (
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/argomesh/argomesh/mesh"
)

// The names of resources. They appear in Envoy's statistics and logs.
const (
	resourceProxyName = "resource_proxy" // listener
	streamName        = "stream"         // listener
	principalCluster  = "principal"      // requests for spokes
	streamCluster     = "principal_stream"
	redisName         = "redis" // listener
	redisCluster      = "principal_redis"
	replicaPrefix     = "replica_"
	tokensName        = "tokens" // extension config
)

// Filters of the resource proxy, in their order; a name is what a refusal cites.
const (
	plainFilter   = "plain"   // onlyPlain
	subjectFilter = "subject" // onlySubject, by route
	rateFilter    = "rate"    // agentRate
	routerFilter  = "router"
)

// replicaName names the cluster of another replica.
func replicaName(a mesh.Address) string { return replicaPrefix + a.String() }

// encoder packs messages into Any, the same bytes each time, and keeps the first
// error: text that is not UTF-8 cannot be encoded.
type encoder struct{ err error }

func (p *encoder) pack(m proto.Message) *anypb.Any {
	packed := &anypb.Any{}
	if err := anypb.MarshalFrom(packed, m, proto.MarshalOptions{Deterministic: true}); err != nil && p.err == nil {
		p.err = fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return packed
}

// extension names a packed configuration.
func (p *encoder) extension(name string, m proto.Message) *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: name, TypedConfig: p.pack(m)}
}

// envoyAddress returns a in Envoy's form.
func envoyAddress(a mesh.Address) *corev3.Address {
	if path, ok := a.Unix(); ok {
		return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path, Mode: socketMode}}}
	}
	tcp, _ := a.TCP()
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       tcp.Addr().String(),
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(tcp.Port())},
		// [::] takes IPv4 too, as it does elsewhere.
		Ipv4Compat: tcp.Addr().Is6() && tcp.Addr().IsUnspecified(),
	}}}
}

// socketMode is that of the unix sockets Envoy makes: its own user and group.
const socketMode = 0o660

// adsSource is the stream Envoy has to us. Envoy waits for what it asks for, however
// long: nothing opens half configured, and Envoy is not ready before.
func adsSource() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		InitialFetchTimeout:   off(),
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

func orDefault(value, otherwise uint32) uint32 {
	if value == 0 {
		return otherwise
	}
	return value
}

func u32(n uint32) *wrapperspb.UInt32Value { return wrapperspb.UInt32(n) }

// off is how Envoy writes a timeout that never comes.
func off() *durationpb.Duration { return durationpb.New(0) }

func exactly(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s}}
}

func beginning(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: s}}
}

// matching takes a regular expression for the whole of the text.
func matching(regex string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: regex}}}
}

// peerKeepalive finds an HTTP/2 peer that is gone.
func peerKeepalive() *corev3.KeepaliveSettings {
	return &corev3.KeepaliveSettings{Interval: durationpb.New(30 * time.Second), Timeout: durationpb.New(15 * time.Second)}
}
