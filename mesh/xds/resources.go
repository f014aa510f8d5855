package xds

import (
	"fmt"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/argomesh/argomesh/identity"
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

// Resources are what Envoy is given, each kind in the order of names.
type Resources struct {
	Listeners []*listenerv3.Listener
	Clusters  []*clusterv3.Cluster
	// Routes has one scope per agent, under the agent's name.
	Routes []*routev3.ScopedRouteConfiguration
	// Extensions has the HTTP filter that validates tokens.
	Extensions []*corev3.TypedExtensionConfig
}

// Render returns the resources for a snapshot. It is deterministic. The error is
// that of [mesh.Snapshot.Validate], or names what cannot be encoded.
func Render(s mesh.Snapshot) (Resources, error) {
	r, err := renderShared(s)
	if err != nil || s.ResourceProxy == nil {
		return r, err
	}
	for name, agent := range s.ResourceProxy.Agents {
		scope, err := renderAgent(name, agent)
		if err != nil {
			return Resources{}, err
		}
		r.Routes = append(r.Routes, scope)
	}
	slices.SortFunc(r.Routes, func(a, b *routev3.ScopedRouteConfiguration) int { return strings.Compare(a.GetName(), b.GetName()) })
	return r, nil
}

// renderShared renders what is not one agent's own.
func renderShared(s mesh.Snapshot) (Resources, error) {
	if err := s.Validate(); err != nil {
		return Resources{}, err
	}
	var (
		p encoder
		r Resources
	)
	if proxy := s.ResourceProxy; proxy != nil {
		r.Listeners = append(r.Listeners, p.resourceProxyListener(s))
		r.Clusters = append(r.Clusters, p.httpCluster(principalCluster, proxy.Principal, orDefault(proxy.MaxRequests, defaultMaxRequests)))
		replicas := make(map[mesh.Address]struct{})
		for _, agent := range proxy.Agents {
			if !agent.Replica.IsZero() {
				replicas[agent.Replica] = struct{}{}
			}
		}
		for address := range replicas {
			r.Clusters = append(r.Clusters, p.replicaCluster(s.Self, address, orDefault(proxy.MaxRequests, defaultMaxRequests)))
		}
		r.Extensions = append(r.Extensions, p.tokens(proxy.Tokens))
	}
	if s.Redis != nil {
		r.Listeners = append(r.Listeners, p.redisListener(s))
		r.Clusters = append(r.Clusters, principalRedis(*s.Redis))
	}
	if s.Stream != nil {
		r.Listeners = append(r.Listeners, p.streamListener(s))
		r.Clusters = append(r.Clusters, p.grpcCluster(streamCluster, s.Stream.Principal))
	}
	slices.SortFunc(r.Clusters, func(a, b *clusterv3.Cluster) int { return strings.Compare(a.GetName(), b.GetName()) })
	return r, p.err
}

// renderAgent renders what is one agent's own.
func renderAgent(name identity.AgentName, agent mesh.Agent) (*routev3.ScopedRouteConfiguration, error) {
	var p encoder
	cluster := principalCluster
	if !agent.Replica.IsZero() {
		cluster = replicaName(agent.Replica)
	}
	scope := p.agentScope(name, cluster)
	return scope, p.err
}

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
