package istio

import (
	"fmt"
	"maps"
	"strconv"

	"google.golang.org/protobuf/proto"
	securityapi "istio.io/api/security/v1beta1"
	typeapi "istio.io/api/type/v1beta1"
	securityv1 "istio.io/client-go/pkg/apis/security/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh"
)

// maxPolicyBytes bounds one policy; the Kubernetes API stores objects of 1.5 MiB.
const maxPolicyBytes = 1 << 20

// checkSizes returns an error for a policy that names more than fit.
func checkSizes(objects []Object) error {
	for _, object := range objects {
		if p, ok := object.(*securityv1.AuthorizationPolicy); ok && proto.Size(&p.Spec) > maxPolicyBytes {
			return fmt.Errorf("istio: AuthorizationPolicy %s/%s would have %d bytes, at most %d are stored: choose policy %s, and leave agents to the registry: %w",
				p.Namespace, p.Name, proto.Size(&p.Spec), maxPolicyBytes, mesh.PolicyGateway, ErrRefused)
		}
	}
	return nil
}

// peerAuthentication asks for the mesh's mutual TLS on each port, but for a stream
// whose TLS the principal itself ends and that no gateway brings.
func (h *hub) peerAuthentication() Object {
	spec := securityapi.PeerAuthentication{
		Selector: selector(h.cfg.Labels),
		Mtls:     mutualTLS(securityapi.PeerAuthentication_MutualTLS_STRICT),
	}
	if !h.inMesh() {
		spec.PortLevelMtls = map[uint32]*securityapi.PeerAuthentication_MutualTLS{
			uint32(h.reach.Stream.Port): mutualTLS(securityapi.PeerAuthentication_MutualTLS_DISABLE),
		}
	}
	return peerAuthentication(h.meta(""), &spec)
}

func peerAuthentication(meta metav1.ObjectMeta, spec *securityapi.PeerAuthentication) Object {
	out := &securityv1.PeerAuthentication{TypeMeta: securityType("PeerAuthentication"), ObjectMeta: meta}
	spec.DeepCopyInto(&out.Spec)
	return out
}

func mutualTLS(mode securityapi.PeerAuthentication_MutualTLS_Mode) *securityapi.PeerAuthentication_MutualTLS {
	return &securityapi.PeerAuthentication_MutualTLS{Mode: mode}
}

// policies are one for each port, and one that denies all else.
func (h *hub) policies() []Object {
	out := []Object{allow(h.meta("deny"), h.cfg.Labels)}
	if rule := h.streamRule(); rule != nil {
		out = append(out, allow(h.meta(streamSuffix), h.cfg.Labels, rule))
	}
	for _, p := range []struct {
		suffix string
		port   mesh.Port
		to     *securityapi.Operation
	}{
		{"resource-proxy", h.reach.ResourceProxy, &securityapi.Operation{}},
		{"redis-proxy", h.reach.RedisProxy, &securityapi.Operation{}},
		{"metrics", h.reach.Metrics, scrape()},
	} {
		if p.port.IsZero() || len(p.port.Callers) == 0 {
			continue // denied above
		}
		p.to.Ports = []string{portText(p.port.Number)}
		out = append(out, allow(h.meta(p.suffix), h.cfg.Labels, rule(principals(p.port.Callers), p.to)))
	}
	return out
}

// scrape is what Prometheus asks for.
func scrape() *securityapi.Operation {
	return &securityapi.Operation{Methods: []string{"GET"}, Paths: []string{"/metrics"}}
}

// streamRule says who reaches the stream's port; nil for no one.
func (h *hub) streamRule() *securityapi.Rule {
	to := &securityapi.Operation{Ports: []string{portText(h.reach.Stream.Port)}}
	if h.readsStream() {
		// Fields of requests never match on a port that carries bytes.
		to.Methods = []string{"POST"}
		for _, service := range h.reach.Stream.Services {
			to.Paths = append(to.Paths, "/"+service+"/*")
		}
	}
	switch {
	case h.policy == mesh.PolicyOpen:
		return &securityapi.Rule{To: []*securityapi.Rule_To{{Operation: to}}}
	case h.reach.Stream.Exposure != mesh.ExposureDirect: // the gateway asks for the agents
		return rule([]string{principal(h.reach.Stream.Gateway)}, to)
	}
	if agents := principals(h.reach.AgentIDs()); len(agents) > 0 {
		return rule(agents, to)
	}
	return nil
}

// gatewayPolicy refuses at the gateway whom the registry does not know. It denies,
// since a policy that allows would deny all else on a gateway that others share; and it
// asks for the SNI, since a denial by host would hold for all that does not speak HTTP.
func (h *hub) gatewayPolicy() Object {
	sni := &securityapi.Condition{Key: "connection.sni", Values: []string{h.reach.Stream.Hub.Host}}
	unknown := &securityapi.Rule{When: []*securityapi.Condition{sni}}
	// With no one registered everyone is denied; an empty list would mean that the
	// source does not matter.
	if agents := principals(h.reach.AgentIDs()); len(agents) > 0 {
		unknown.From = []*securityapi.Rule_From{{Source: &securityapi.Source{NotPrincipals: agents}}}
	}
	spec := securityapi.AuthorizationPolicy{
		Selector: selector(h.cfg.Gateway.Labels), Action: securityapi.AuthorizationPolicy_DENY,
		Rules: []*securityapi.Rule{unknown},
	}
	return policy(h.gatewayMeta(), &spec)
}

// allow returns a policy that allows what matches a rule. Without rules it allows
// nothing, and so everything is denied that no other policy allows.
func allow(meta metav1.ObjectMeta, labels map[string]string, rules ...*securityapi.Rule) Object {
	return policy(meta, &securityapi.AuthorizationPolicy{Selector: selector(labels), Rules: rules})
}

func policy(meta metav1.ObjectMeta, spec *securityapi.AuthorizationPolicy) Object {
	out := &securityv1.AuthorizationPolicy{TypeMeta: securityType("AuthorizationPolicy"), ObjectMeta: meta}
	spec.DeepCopyInto(&out.Spec)
	return out
}

func rule(from []string, to *securityapi.Operation) *securityapi.Rule {
	return &securityapi.Rule{
		From: []*securityapi.Rule_From{{Source: &securityapi.Source{Principals: from}}},
		To:   []*securityapi.Rule_To{{Operation: to}},
	}
}

func selector(labels map[string]string) *typeapi.WorkloadSelector {
	return &typeapi.WorkloadSelector{MatchLabels: maps.Clone(labels)}
}

func securityType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: securityv1.SchemeGroupVersion.String(), Kind: kind}
}

func portText(port uint16) string { return strconv.FormatUint(uint64(port), 10) }

// certificate is what a gateway shows to agents.
type certificate int

const (
	noCertificate       certificate = iota // it does not terminate their TLS
	certificateOfMesh                      // its SVID
	certificateOfSecret                    // that of a Secret
)

func shows(p mesh.StreamPort) certificate {
	switch {
	case mesh.TLSTerminatorOf(p.Exposure, p.Method) != mesh.TerminatorGateway:
		return noCertificate
	case p.Method == identity.MethodJWT:
		return certificateOfSecret
	}
	return certificateOfMesh
}
