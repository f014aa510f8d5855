package xds

import (
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
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
	slices.SortFunc(r.Routes,
		func(a, b *routev3.ScopedRouteConfiguration) int { return strings.Compare(a.GetName(), b.GetName()) })
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
		r.Clusters = append(r.Clusters,
			p.httpCluster(principalCluster, proxy.Principal, orDefault(proxy.MaxRequests, defaultMaxRequests)))
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
