package principalconfig

import (
	"errors"

	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/meshconfig"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/mesh/xds"
)

// Envoy is the Envoy beside the principal, its front door. Key: envoy. Without an
// address for xDS there is none.
type Envoy struct {
	Listen         string       `koanf:"listen" help:"address on which the Envoy beside the principal is programmed: a unix socket, such as unix:///run/argomesh/xds.sock; empty for no Envoy"`
	NodeID         string       `koanf:"node_id" help:"what that Envoy says it is in its bootstrap"`
	ResourceProxy  mesh.Address `koanf:"resource_proxy" help:"address on which Envoy takes requests for spokes: ip:port"`
	Stream         mesh.Address `koanf:"stream" help:"address on which Envoy takes the connections of agents and terminates their TLS: ip:port; empty when they connect to the principal itself"`
	StreamUpstream mesh.Address `koanf:"stream_upstream" help:"address on which the principal takes them from Envoy: unix:///path or ip:port on loopback"`
	Redis          mesh.Address `koanf:"redis" help:"address on which Envoy takes the hub's Argo CD for redis_proxy: ip:port"`
	RedisTLS       string       `koanf:"redis_tls" help:"TLS of that address: none where a mesh has its own, svid for the principal's SVID, files for redis_certificate"`
	RedisCert      string       `koanf:"redis_certificate" help:"PEM file with the certificates of redis_tls files, as Envoy sees it"`
	RedisKey       string       `koanf:"redis_key" help:"PEM file with their private key, as Envoy sees it"`
	MaxRequests    uint32       `koanf:"max_requests" help:"requests for spokes under way at a time, watches included; more get 503"`
	MaxConnections uint32       `koanf:"max_connections" help:"open connections of callers at a time; more are closed"`
}

// DefaultEnvoy has the sockets of a pod, and no Envoy.
func DefaultEnvoy() Envoy {
	address := func(s string) mesh.Address {
		a, err := mesh.ParseAddress(s)
		if err != nil {
			panic(err) // a constant
		}
		return a
	}
	return Envoy{
		NodeID:         xds.DefaultNodeID,
		ResourceProxy:  address("0.0.0.0:9090"),
		StreamUpstream: address(meshconfig.StreamSocket),
		Redis:          address("0.0.0.0:6379"),
		RedisTLS:       string(mesh.RedisTLSSVID),
		MaxRequests:    10_000,
		MaxConnections: 10_000,
	}
}

// Validate reports every problem. Without Envoy nothing is one.
func (e Envoy) Validate() error {
	if e.Listen == "" {
		return nil
	}
	var problems []error
	if address, err := mesh.ParseAddress(e.Listen); err != nil || !address.IsLocal() {
		problems = append(problems,
			config.Invalid("listen", "%q is not for this pod alone: use a unix socket, such as unix:///run/argomesh/xds.sock",
				e.Listen))
	}
	if e.NodeID == "" {
		problems = append(problems,
			config.Invalid("node_id", "is not set: give the node id of Envoy's bootstrap, such as %s", xds.DefaultNodeID))
	}
	if e.ResourceProxy.IsZero() {
		problems = append(problems, config.Invalid("resource_proxy", "is not set: give an address such as 0.0.0.0:9090"))
	}
	if !e.Stream.IsZero() && !e.StreamUpstream.IsLocal() {
		problems = append(problems,
			config.Invalid("stream_upstream", "%q is not for this pod alone: use a unix socket or a loopback address",
				e.StreamUpstream))
	}
	if e.Redis.IsZero() {
		problems = append(problems, config.Invalid("redis", "is not set: give an address such as 0.0.0.0:6379"))
	}
	switch mesh.RedisTLS(e.RedisTLS) {
	case mesh.RedisTLSNone, mesh.RedisTLSSVID:
	case mesh.RedisTLSFiles:
		if e.RedisCert == "" || e.RedisKey == "" {
			problems = append(problems,
				config.Invalid("redis_certificate", "envoy.redis_tls is files: give redis_certificate and redis_key"))
		}
	default:
		problems = append(problems, config.Invalid("redis_tls", "%q is not one of none, svid and files", e.RedisTLS))
	}
	if e.MaxRequests == 0 {
		problems = append(problems, config.Invalid("max_requests", "0 admits none: use 1 or more"))
	}
	if e.MaxConnections == 0 {
		problems = append(problems, config.Invalid("max_connections", "0 admits none: use 1 or more"))
	}
	return errors.Join(problems...)
}
