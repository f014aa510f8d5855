package istio

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	networkapi "istio.io/api/networking/v1alpha3"
	securityapi "istio.io/api/security/v1beta1"
	networkv1 "istio.io/client-go/pkg/apis/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argomesh/argomesh/mesh"
)

// DefaultAgentName is what an agent's workload and objects are called unless told
// otherwise.
const DefaultAgentName = "argomesh-agent"

// SpokeConfig says where in a spoke's Istio the agent is.
type SpokeConfig struct {
	// Namespace is the agent's. Required.
	Namespace string
	// Name begins the names of the objects. Empty means DefaultAgentName.
	Name string
	// Labels select the agent's pods. None means app.kubernetes.io/name with the value
	// Name.
	Labels map[string]string
	// Metrics is the agent's metrics port and who scrapes it, in the spoke's trust
	// domain. The zero value means no one.
	Metrics mesh.Port
}

// agentConnections bounds the connections of one agent to its hub: that of the sync
// stream, those of the tunnel, and as many again while a renewed SVID is proven.
const agentConnections = 64

// RenderSpoke returns the objects of one spoke whose agent runs inside its mesh, sorted
// by kind, namespace and name: the hub as a place outside of the mesh, and a pod that
// no one connects to, but Prometheus. Errors are as with [Render].
func RenderSpoke(s mesh.Snapshot, cfg SpokeConfig) ([]Object, error) {
	if s.Reach == nil {
		return nil, nil
	}
	cfg.Name = cmp.Or(cfg.Name, DefaultAgentName)
	if len(cfg.Labels) == 0 {
		cfg.Labels = map[string]string{"app.kubernetes.io/name": cfg.Name}
	}
	if err := errors.Join(mesh.Check(s), cfg.check()); err != nil {
		return nil, err
	}
	hub := s.Reach.Stream.Hub
	out := []Object{
		cfg.serviceEntry(hub),
		cfg.destinationRule(hub),
		peerAuthentication(meta(cfg.Namespace, cfg.Name), &securityapi.PeerAuthentication{
			Selector: selector(cfg.Labels), Mtls: mutualTLS(securityapi.PeerAuthentication_MutualTLS_STRICT),
		}),
		allow(meta(cfg.Namespace, cfg.Name+"-deny"), cfg.Labels),
	}
	if !cfg.Metrics.IsZero() && len(cfg.Metrics.Callers) > 0 {
		to := scrape()
		to.Ports = []string{portText(cfg.Metrics.Number)}
		out = append(out,
			allow(meta(cfg.Namespace, cfg.Name+"-metrics"), cfg.Labels, rule(principals(cfg.Metrics.Callers), to)))
	}
	return sorted(out), nil
}

func (c SpokeConfig) check() error {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("istio: "+format+": %w", append(args, ErrRefused)...))
	}
	if len(validation.IsDNS1123Label(c.Namespace)) > 0 {
		bad("namespace %q cannot be one: give that of the agent", c.Namespace)
	}
	if len(validation.IsDNS1123Label(c.Name)) > 0 || len(c.Name) > maxNameBytes {
		bad("name %q is not a DNS label of at most %d bytes", c.Name, maxNameBytes)
	}
	problems = append(problems, checkLabels("the agent's pods", c.Labels))
	for _, id := range c.Metrics.Callers {
		if _, ok := account(id); !ok {
			bad("caller %s is not spiffe://<trust domain>/ns/<namespace>/sa/<service account>, so no workload of Istio has it",
				id)
		} else if first := c.Metrics.Callers[0]; id.TrustDomain() != first.TrustDomain() {
			bad("callers %s and %s are of two trust domains, and a spoke's mesh has one", first, id)
		}
	}
	return errors.Join(problems...)
}

// serviceEntry makes the hub known to the agent's proxy, which routes by SNI and leaves
// TLS alone.
func (c SpokeConfig) serviceEntry(hub mesh.HubAddress) Object {
	out := &networkv1.ServiceEntry{TypeMeta: networkType("ServiceEntry"), ObjectMeta: meta(c.Namespace, c.Name+"-hub")}
	out.Spec.Hosts = []string{hub.Host}
	out.Spec.Location = networkapi.ServiceEntry_MESH_EXTERNAL
	out.Spec.Resolution = networkapi.ServiceEntry_DNS
	out.Spec.Ports = []*networkapi.ServicePort{{Number: uint32(hub.Port), Protocol: "TLS", Name: "tls-hub"}}
	out.Spec.ExportTo = []string{ownNamespace}
	return out
}

// ownNamespace is how Istio writes that only the object's namespace sees it.
const ownNamespace = "."

// destinationRule keeps the proxy from adding TLS to what the agent encrypts, and from
// cutting what is quiet.
func (c SpokeConfig) destinationRule(hub mesh.HubAddress) Object {
	out := &networkv1.DestinationRule{TypeMeta: networkType("DestinationRule"),
		ObjectMeta: meta(c.Namespace, c.Name+"-hub")}
	out.Spec.Host = hub.Host
	out.Spec.ExportTo = []string{ownNamespace}
	out.Spec.TrafficPolicy = &networkapi.TrafficPolicy{
		ConnectionPool: pool(port{connections: agentConnections}),
		Tls:            &networkapi.ClientTLSSettings{Mode: networkapi.ClientTLSSettings_DISABLE},
	}
	return out
}

// foreign returns the trust domains of ids but own.
func foreign(domains []spiffeid.TrustDomain, own spiffeid.TrustDomain) []spiffeid.TrustDomain {
	var out []spiffeid.TrustDomain
	for _, td := range domains {
		if td != own {
			out = append(out, td)
		}
	}
	return out
}
