package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// policy is a NetworkPolicy of which all is supported.
type policy struct {
	namespace, name string
	selector        labels.Selector
	// rules has each direction in which the policy isolates its pods, with what it allows there.
	rules map[direction][]rule
}

func (p policy) selects(pod *corev1.Pod) bool {
	return pod.Namespace == p.namespace && p.selector.Matches(labels.Set(pod.Labels))
}

// rule allows what matches one of the peers and one of the ports. Where there are none, all match.
type rule struct {
	peers []peer
	ports []port
}

// peer is a block of addresses, or pods.
type peer struct {
	block      *block
	pods       labels.Selector
	namespaces labels.Selector // nil for the policy's own
	own        string          // the policy's own namespace
}

func (p peer) matches(e endpoint, a netip.Addr) bool {
	switch {
	case p.block != nil:
		return p.block.contains(a)
	case p.namespaces == nil:
		return e.pod.Namespace == p.own && p.pods.Matches(labels.Set(e.pod.Labels))
	default:
		return p.namespaces.Matches(e.namespace) && p.pods.Matches(labels.Set(e.pod.Labels))
	}
}

// block is all addresses of a prefix that are in none of the exceptions.
type block struct {
	prefix netip.Prefix
	except []netip.Prefix
}

func (b *block) contains(a netip.Addr) bool {
	return b.prefix.Contains(a) && !slices.ContainsFunc(b.except, func(e netip.Prefix) bool { return e.Contains(a) })
}

// port is a range of ports, all ports of the protocol when first is 0, or the port of a container by name.
type port struct {
	protocol    corev1.Protocol
	name        string
	first, last int32
}

// parsePolicies returns the policies by namespace and name. The error has everything that is not supported
// in any of them.
func parsePolicies(objects []*networkingv1.NetworkPolicy) ([]policy, error) {
	objects = slices.Clone(objects)
	slices.SortFunc(objects, func(a, b *networkingv1.NetworkPolicy) int { return compareNames(a, b) })
	all := make([]policy, 0, len(objects))
	var problems []error
	for _, o := range objects {
		p := parser{namespace: o.Namespace}
		all = append(all, p.policy(o))
		if err := p.errs.ToAggregate(); err != nil {
			problems = append(problems, fmt.Errorf("NetworkPolicy %s/%s: %w", o.Namespace, o.Name, err))
		}
	}
	return all, errors.Join(problems...)
}

// parser notes what of a policy is not supported. What the API server refuses does not come here.
type parser struct {
	namespace string
	errs      field.ErrorList
}

func (p *parser) policy(of *networkingv1.NetworkPolicy) policy {
	spec := field.NewPath("spec")
	parsed := policy{
		namespace: of.Namespace, name: of.Name,
		selector: p.selector(spec.Child("podSelector"), &of.Spec.PodSelector), rules: map[direction][]rule{},
	}
	for i, t := range policyTypes(of.Spec) {
		switch t {
		case networkingv1.PolicyTypeIngress:
			parsed.rules[ingress] = p.ingress(spec.Child("ingress"), of.Spec.Ingress)
		case networkingv1.PolicyTypeEgress:
			parsed.rules[egress] = p.egress(spec.Child("egress"), of.Spec.Egress)
		default:
			known := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
			p.errs = append(p.errs, field.NotSupported(spec.Child("policyTypes").Index(i), t, known))
		}
	}
	return parsed
}

// policyTypes returns the directions of a policy. One that does not name them is about ingress, and about
// egress if it has rules for that.
func policyTypes(spec networkingv1.NetworkPolicySpec) []networkingv1.PolicyType {
	switch {
	case len(spec.PolicyTypes) > 0:
		return spec.PolicyTypes
	case len(spec.Egress) > 0:
		return []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	default:
		return []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	}
}

func (p *parser) ingress(path *field.Path, rules []networkingv1.NetworkPolicyIngressRule) (parsed []rule) {
	for i, r := range rules {
		at := path.Index(i)
		peers, ports := p.peers(at.Child("from"), r.From), p.ports(at.Child("ports"), r.Ports)
		parsed = append(parsed, rule{peers: peers, ports: ports})
	}
	return parsed
}

func (p *parser) egress(path *field.Path, rules []networkingv1.NetworkPolicyEgressRule) (parsed []rule) {
	for i, r := range rules {
		at := path.Index(i)
		peers, ports := p.peers(at.Child("to"), r.To), p.ports(at.Child("ports"), r.Ports)
		parsed = append(parsed, rule{peers: peers, ports: ports})
	}
	return parsed
}

func (p *parser) peers(path *field.Path, peers []networkingv1.NetworkPolicyPeer) (parsed []peer) {
	for i, of := range peers {
		parsed = append(parsed, p.peer(path.Index(i), of))
	}
	return parsed
}

func (p *parser) peer(path *field.Path, of networkingv1.NetworkPolicyPeer) peer {
	if of.IPBlock != nil {
		return peer{block: p.block(path.Child("ipBlock"), of.IPBlock)}
	}
	parsed := peer{own: p.namespace, pods: labels.Everything()}
	if of.PodSelector != nil {
		parsed.pods = p.selector(path.Child("podSelector"), of.PodSelector)
	}
	if of.NamespaceSelector != nil {
		parsed.namespaces = p.selector(path.Child("namespaceSelector"), of.NamespaceSelector)
	}
	return parsed
}

func (p *parser) block(path *field.Path, of *networkingv1.IPBlock) *block {
	parsed := &block{prefix: p.prefix(path.Child("cidr"), of.CIDR)}
	for i, except := range of.Except {
		parsed.except = append(parsed.except, p.prefix(path.Child("except").Index(i), except))
	}
	return parsed
}

func (p *parser) prefix(path *field.Path, cidr string) netip.Prefix {
	parsed, err := netip.ParsePrefix(cidr)
	if err != nil {
		p.errs = append(p.errs, field.Invalid(path, cidr, err.Error()))
	}
	return parsed.Masked()
}

func (p *parser) selector(path *field.Path, of *metav1.LabelSelector) labels.Selector {
	parsed, err := metav1.LabelSelectorAsSelector(of)
	if err != nil {
		p.errs = append(p.errs, field.Invalid(path, metav1.FormatLabelSelector(of), err.Error()))
		return labels.Nothing()
	}
	return parsed
}

func (p *parser) ports(path *field.Path, ports []networkingv1.NetworkPolicyPort) (parsed []port) {
	for i, of := range ports {
		parsed = append(parsed, p.port(path.Index(i), of))
	}
	return parsed
}

func (p *parser) port(path *field.Path, of networkingv1.NetworkPolicyPort) port {
	parsed := port{protocol: ptr.Deref(of.Protocol, corev1.ProtocolTCP)}
	if parsed.protocol != corev1.ProtocolTCP && parsed.protocol != corev1.ProtocolUDP {
		known := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}
		p.errs = append(p.errs, field.NotSupported(path.Child("protocol"), parsed.protocol, known))
	}
	switch {
	case of.Port == nil:
	case of.Port.Type == intstr.String:
		parsed.name = of.Port.StrVal
	default:
		parsed.first = of.Port.IntVal
		parsed.last = ptr.Deref(of.EndPort, parsed.first)
	}
	return parsed
}
