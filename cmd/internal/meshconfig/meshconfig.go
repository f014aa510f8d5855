// Package meshconfig is the block mesh of the principal's configuration: through what
// mesh agents and Argo CD reach it, and what the mesh is to enforce. The principal
// checks it when it starts and may keep the mesh's objects by it; agentctl renders them
// from it. What can be enforced is package mesh's to say.
package meshconfig

import (
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
	"github.com/argomesh/argomesh/mesh/istio"
	"github.com/argomesh/argomesh/mesh/objects"
	"github.com/argomesh/argomesh/mesh/spire"
	"github.com/argomesh/argomesh/stream/streampb"
)

// Mesh says how a service mesh is used. Key: mesh. Without an exposure there is none.
type Mesh struct {
	Exposure mesh.Exposure `koanf:"exposure" help:"how agents reach the principal: direct, passthrough (a gateway routes by SNI) or gateway (a gateway terminates TLS); empty for no mesh"`
	Method   string        `koanf:"method" help:"how they prove themselves there: spiffe-x509, spiffe-jwt or header"`
	Policy   mesh.Policy   `koanf:"policy" help:"whom the mesh lets through: open, gateway or agents; empty for the most that can be enforced"`

	Principal spiffeid.ID `koanf:"principal" help:"SPIFFE ID of the principal's service account"`
	Hub       string      `koanf:"hub" help:"host:port at which agents reach the hub, as seen from spokes"`

	StreamPort        uint16       `koanf:"stream_port" help:"port of the principal's pod for agents"`
	StreamUpstream    mesh.Address `koanf:"stream_upstream" help:"where the principal takes what its pod's proxy brings: unix:///path or ip:port on loopback; empty for unix:///run/argomesh/stream.sock with method header, or else for the same port on loopback"`
	ResourceProxyPort uint16       `koanf:"resource_proxy_port" help:"port of the principal's pod for requests to spokes; 0 for none"`
	RedisProxyPort    uint16       `koanf:"redis_proxy_port" help:"port of the principal's pod for Redis; 0 for none"`
	MetricsPort       uint16       `koanf:"metrics_port" help:"port of the principal's pod for metrics"`

	ArgoCD   []spiffeid.ID `koanf:"argo_cd" help:"SPIFFE IDs of Argo CD's service accounts, which alone may call the proxies"`
	Scrapers []spiffeid.ID `koanf:"scrapers" help:"SPIFFE IDs that may scrape metrics"`

	Service            string                 `koanf:"service" help:"name of the principal's Kubernetes Service for Argo CD"`
	StreamService      string                 `koanf:"stream_service" help:"name of its Kubernetes Service for agents; empty for mesh.service with -stream, as in the chart"`
	PodLabels          map[string]string      `koanf:"pod_labels" help:"labels of the principal's pods; empty for app.kubernetes.io/name with the name of the Service"`
	ClusterDomain      string                 `koanf:"cluster_domain" help:"what the names of Kubernetes Services end with"`
	TrustDomainAliases []spiffeid.TrustDomain `koanf:"trust_domain_aliases" help:"trustDomainAliases of Istio's meshConfig, if it has any"`
	Gateway            Gateway                `koanf:"gateway"`
	Live               Live                   `koanf:"live"`
}

// Gateway is the gateway that agents' connections pass. Key: mesh.gateway.
type Gateway struct {
	SPIFFEID       spiffeid.ID       `koanf:"spiffe_id" help:"SPIFFE ID of the gateway's service account"`
	Namespace      string            `koanf:"namespace" help:"namespace of the gateway"`
	PodLabels      map[string]string `koanf:"pod_labels" help:"labels of the gateway's pods"`
	CredentialName string            `koanf:"credential_name" help:"Secret with the gateway's certificate, for method spiffe-jwt only"`
}

// Live says what the principal itself does about the mesh's objects on the hub. Key:
// mesh.live. (The words off and on would be truth values to YAML.)
type Live struct {
	Istio      string `koanf:"istio" help:"what the principal does about the objects of the hub's Istio: report (say in condition MeshPolicy of the Agents how they differ) or apply (keep them as they should be); empty for nothing"`
	SPIRE      string `koanf:"spire" help:"the same for the ClusterSPIFFEIDs of the principal, the gateway and Argo CD"`
	SPIREClass string `koanf:"spire_class" help:"class of the spire-controller-manager that handles those; empty for one without class"`
}

// What the principal does.
const (
	LiveReport = "report"
	LiveApply  = "apply"
)

// Validate reports every problem.
func (l Live) Validate() error {
	var problems []error
	for key, value := range map[string]string{"istio": l.Istio, "spire": l.SPIRE} {
		if value != "" && value != LiveReport && value != LiveApply {
			problems = append(problems,
				config.Invalid(key, "%q is neither %s nor %s: use one of them, or leave it empty", value, LiveReport, LiveApply))
		}
	}
	return errors.Join(problems...)
}

// Default is no mesh, and the ports that the principal has by default.
func Default() Mesh {
	return Mesh{
		StreamPort: 8443, ResourceProxyPort: 9090, MetricsPort: 8080,
		Service: "argomesh-principal", ClusterDomain: "cluster.local",
	}
}

// StreamSocket is where the principal takes agents from the proxy of its pod by method
// header, unless another address is given. Loopback would be open to anyone who may forward
// ports of the pod, and what comes there can say who it is.
const StreamSocket = "unix:///run/argomesh/stream.sock"

// Upstream is StreamUpstream, or what an empty one stands for. The zero value is the same
// port on loopback.
func (m Mesh) Upstream() mesh.Address {
	if !m.StreamUpstream.IsZero() || m.Method != identity.MethodHeader {
		return m.StreamUpstream
	}
	at, err := mesh.ParseAddress(StreamSocket)
	if err != nil {
		panic(err) // a constant
	}
	return at
}

// Validate reports every problem. Without an exposure nothing is one.
func (m Mesh) Validate() error {
	if m.Exposure == "" {
		if m.Live.Istio != "" || m.Live.SPIRE != "" {
			return config.Invalid("live",
				"without mesh.exposure there is nothing to keep: set that, or leave live.istio and live.spire empty")
		}
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
		return mesh.Snapshot{}, config.Invalid("hub",
			"%q is not host:port: give the address at which agents reach the hub, such as argomesh.example.com:443", m.Hub)
	}
	reach := &mesh.Reach{
		Stream: mesh.StreamPort{
			Port: m.StreamPort, Exposure: m.Exposure, Method: m.Method, Policy: m.Policy, Upstream: m.Upstream(),
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

// Istio says where a principal in namespace is in its hub's Istio.
func (m Mesh) Istio(namespace string) istio.Config {
	return istio.Config{
		Namespace: namespace, Name: m.Service, StreamService: m.StreamService, Labels: m.PodLabels,
		ClusterDomain: m.ClusterDomain,
		Gateway: istio.Gateway{Namespace: m.Gateway.Namespace, Labels: m.Gateway.PodLabels,
			CredentialName: m.Gateway.CredentialName},
		TrustDomainAliases: m.TrustDomainAliases,
	}
}

// SPIRE says how the workloads of a hub with a principal in namespace are registered.
func (m Mesh) SPIRE(namespace string) spire.HubConfig {
	service := m.Service + "." + namespace + ".svc"
	return spire.HubConfig{PrincipalNames: []string{m.Service, service, service + "." + m.ClusterDomain},
		ClassName: m.Live.SPIREClass}
}

// Part is what one product has on a hub.
type Part struct {
	// Name is istio or spire.
	Name string
	// Live is what the principal does about it: one of the Live constants, or empty.
	Live string
	// Places are where its objects are.
	Places []objects.Scope
	// Render returns its objects for the agents that may connect.
	Render func(agents map[identity.AgentName][]spiffeid.ID) ([]*unstructured.Unstructured, error)
	// Verify says how what is there differs from what was rendered.
	Verify func(want, have []*unstructured.Unstructured, manager string) []objects.Difference
}

// The names of the parts.
const (
	PartIstio = "istio"
	PartSPIRE = "spire"
)

// Parts returns Istio's and SPIRE's, for a principal in namespace. It is for a Mesh with
// an exposure.
func (m Mesh) Parts(namespace string) []Part {
	place := m.Istio(namespace)
	return []Part{
		{
			Name: PartIstio, Live: m.Live.Istio, Places: istio.Scopes(place), Verify: istio.Verify,
			Render: func(agents map[identity.AgentName][]spiffeid.ID) ([]*unstructured.Unstructured, error) {
				snapshot, err := m.Snapshot(agents)
				if err != nil {
					return nil, err
				}
				typed, err := istio.Render(snapshot, place)
				if err != nil {
					return nil, err
				}
				return istio.AllUnstructured(typed)
			},
		},
		{
			Name: PartSPIRE, Live: m.Live.SPIRE, Places: spire.Scopes(), Verify: spire.Verify,
			Render: func(agents map[identity.AgentName][]spiffeid.ID) ([]*unstructured.Unstructured, error) {
				snapshot, err := m.Snapshot(agents)
				if err != nil {
					return nil, err
				}
				return spire.HubObjects(snapshot, m.SPIRE(namespace))
			},
		},
	}
}
