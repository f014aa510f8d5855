// Package meshconfig is the block mesh of the principal's configuration: through what
// mesh agents and Argo CD reach it, and what the mesh is to enforce. The principal
// checks it when it starts; agentctl renders the mesh's objects from it. What can be
// enforced is package mesh's to say.
package meshconfig

import (
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/stream/streampb"
)

// Mesh says how a service mesh is used. Key: mesh. Without an exposure there is none.
type Mesh struct {
	Exposure mesh.Exposure `koanf:"exposure" help:"how agents reach the principal: direct, passthrough (a gateway routes by SNI) or gateway (a gateway ends TLS); empty for no mesh"`
	Method   string        `koanf:"method" help:"how they prove themselves there: spiffe-x509, spiffe-jwt or header"`
	Policy   mesh.Policy   `koanf:"policy" help:"whom the mesh lets through: open, gateway or agents; empty for the most that can be enforced"`

	Principal spiffeid.ID `koanf:"principal" help:"SPIFFE ID of the principal's service account"`
	Hub       string      `koanf:"hub" help:"host:port at which agents reach the hub, as seen from spokes"`

	StreamPort        uint16       `koanf:"stream_port" help:"port of the principal's pod for agents"`
	StreamUpstream    mesh.Address `koanf:"stream_upstream" help:"where the principal takes what its pod's proxy brings: unix:///path or ip:port on loopback; empty for the same port on loopback"`
	ResourceProxyPort uint16       `koanf:"resource_proxy_port" help:"port of the principal's pod for requests to spokes; 0 for none"`
	RedisProxyPort    uint16       `koanf:"redis_proxy_port" help:"port of the principal's pod for Redis; 0 for none"`
	MetricsPort       uint16       `koanf:"metrics_port" help:"port of the principal's pod for metrics"`

	ArgoCD   []spiffeid.ID `koanf:"argo_cd" help:"SPIFFE IDs of Argo CD's service accounts, which alone may call the proxies"`
	Scrapers []spiffeid.ID `koanf:"scrapers" help:"SPIFFE IDs that may scrape metrics"`

	Service            string                 `koanf:"service" help:"name of the principal's Kubernetes Service"`
	PodLabels          map[string]string      `koanf:"pod_labels" help:"labels of the principal's pods; empty for app.kubernetes.io/name with the name of the Service"`
	ClusterDomain      string                 `koanf:"cluster_domain" help:"what the names of Kubernetes Services end with"`
	TrustDomainAliases []spiffeid.TrustDomain `koanf:"trust_domain_aliases" help:"trustDomainAliases of Istio's meshConfig, if it has any"`
	Gateway            Gateway                `koanf:"gateway"`
}

// Gateway is the gateway that agents' connections pass. Key: mesh.gateway.
type Gateway struct {
	SPIFFEID       spiffeid.ID       `koanf:"spiffe_id" help:"SPIFFE ID of the gateway's service account"`
	Namespace      string            `koanf:"namespace" help:"namespace of the gateway"`
	PodLabels      map[string]string `koanf:"pod_labels" help:"labels of the gateway's pods"`
	CredentialName string            `koanf:"credential_name" help:"Secret with the gateway's certificate, for method spiffe-jwt only"`
}

// Default is no mesh, and the ports that the principal has by default.
func Default() Mesh {
	return Mesh{
		StreamPort: 8443, ResourceProxyPort: 9090, MetricsPort: 8080,
		Service: "argomesh-principal", ClusterDomain: "cluster.local",
	}
}

// Validate reports every problem. Without an exposure nothing is one.
func (m Mesh) Validate() error {
	if m.Exposure == "" {
		return nil
	}
	snapshot, err := m.Snapshot(nil)
	if err != nil {
		return err
	}
	// All problems come in one line, since they are about several keys.
	if err := mesh.Check(snapshot); err != nil {
		return config.Invalid("exposure", "%s: %s", m.Exposure, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// Snapshot returns what a mesh has to know, with the agents that may connect. It is
// for a Mesh with an exposure.
func (m Mesh) Snapshot(agents map[identity.AgentName][]spiffeid.ID) (mesh.Snapshot, error) {
	host, port, err := net.SplitHostPort(m.Hub)
	number, numberErr := strconv.ParseUint(port, 10, 16)
	if errors.Join(err, numberErr) != nil {
		return mesh.Snapshot{}, config.Invalid("hub", "%q is not host:port: give the address at which agents reach the hub, such as argomesh.example.com:443", m.Hub)
	}
	reach := &mesh.Reach{
		Stream: mesh.StreamPort{
			Port: m.StreamPort, Exposure: m.Exposure, Method: m.Method, Policy: m.Policy, Upstream: m.StreamUpstream,
			Services: []string{streampb.Stream_ServiceDesc.ServiceName, streampb.Tunnel_ServiceDesc.ServiceName},
			Gateway:  m.Gateway.SPIFFEID, Hub: mesh.HubAddress{Host: host, Port: uint16(number)},
		},
		Metrics: mesh.Port{Number: m.MetricsPort, Callers: m.Scrapers},
		Agents:  agents,
	}
	if m.ResourceProxyPort != 0 {
		reach.ResourceProxy = mesh.Port{Number: m.ResourceProxyPort, Callers: m.ArgoCD}
	}
	if m.RedisProxyPort != 0 {
		reach.RedisProxy = mesh.Port{Number: m.RedisProxyPort, Callers: m.ArgoCD}
	}
	return mesh.Snapshot{Self: m.Principal, Reach: reach}, nil
}
