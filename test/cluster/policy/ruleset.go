package policy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// Table is the table of nftables, of family inet, that holds the rules and nothing else.
const Table = "argomesh-policy"

// Objects are those of a Kubernetes cluster from which rules are made. Their order does not matter, and they
// are only read.
type Objects struct {
	Policies   []*networkingv1.NetworkPolicy
	Pods       []*corev1.Pod
	Namespaces []*corev1.Namespace
}

// direction is one in which policies isolate pods.
type direction struct {
	name string // that of the chain, too
	// pod and peer are the fields of an IP packet that have the address of the pod, and of its peer.
	pod, peer string
}

var (
	ingress = direction{name: "ingress", pod: "daddr", peer: "saddr"}
	egress  = direction{name: "egress", pod: "saddr", peer: "daddr"}
)

// head begins the ruleset. In the transaction of nft the table is there before it is deleted, so that the
// first run needs no other text. Neighbours have to be found for any IPv6 at all.
const head = `add table inet %[1]s
delete table inet %[1]s
table inet %[1]s {
	chain forward {
		type filter hook forward priority filter; policy accept;
		ct state established,related accept
		jump egress
		jump ingress
	}
	chain input {
		type filter hook input priority filter; policy accept;
		ct state established,related accept
		icmpv6 type { nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert } accept
		jump egress
	}
`

// Ruleset returns what "nft -f -" needs to isolate the pods of a node as the policies want it, in place of
// what was there before. Equal objects give the same text. The error names each policy and field that is not
// supported.
func Ruleset(node string, objects Objects) (string, error) {
	policies, err := parsePolicies(objects.Policies)
	if err != nil {
		return "", err
	}
	pods, err := endpoints(objects)
	if err != nil {
		return "", err
	}
	c := cluster{policies: policies, pods: pods}
	var out strings.Builder
	fmt.Fprintf(&out, head, Table)
	for _, d := range []direction{egress, ingress} {
		writeChains(&out, d, c.chains(node, d))
	}
	out.WriteString("}\n")
	return out.String(), nil
}

// chain has the rules for one pod in one direction. It returns for what is allowed, and drops all else.
type chain struct {
	name      string
	addresses []netip.Addr
	rules     []string
}

// writeChains writes the chain of a direction, in which each pod's address leads to the pod's chain, and
// those of the pods.
func writeChains(out *strings.Builder, d direction, chains []chain) {
	jumps := map[string][]string{} // by family
	for _, c := range chains {
		for _, a := range c.addresses {
			jumps[family(a)] = append(jumps[family(a)], fmt.Sprintf("\t\t\t%v : jump %s,\n", a, c.name))
		}
	}
	fmt.Fprintf(out, "\tchain %s {\n", d.name)
	for _, f := range slices.Sorted(maps.Keys(jumps)) {
		fmt.Fprintf(out, "\t\t%s %s vmap {\n%s\t\t}\n", f, d.pod, strings.Join(jumps[f], ""))
	}
	out.WriteString("\t}\n")
	for _, c := range chains {
		fmt.Fprintf(out, "\tchain %s {\n", c.name)
		for _, r := range c.rules {
			fmt.Fprintf(out, "\t\t%s\n", r)
		}
		out.WriteString("\t\tcounter drop\n\t}\n")
	}
}

// cluster is what decides what pods may do.
type cluster struct {
	policies []policy
	pods     []endpoint
}

// chains returns those of the node's pods that are isolated in a direction.
func (c cluster) chains(node string, d direction) (all []chain) {
	for _, e := range c.pods {
		if e.pod.Spec.NodeName != node {
			continue
		}
		if rules, isolated := c.rules(d, e); isolated {
			all = append(all, chain{name: chainName(d, e.pod), addresses: e.addresses, rules: rules})
		}
	}
	return all
}

// maxName is how long the name of a chain may be, in bytes: one less than NFT_NAME_MAXLEN of Linux.
const maxName = 255

// chainName names the pod, unless its name is too long for that.
func chainName(d direction, pod *corev1.Pod) string {
	name := d.name + "/" + pod.Namespace + "/"
	if len(name)+len(pod.Name) > maxName {
		return name + string(pod.UID)
	}
	return name + pod.Name
}

// rules returns what is allowed for a pod, and whether any policy isolates it.
func (c cluster) rules(d direction, of endpoint) (rules []string, isolated bool) {
	rules = allow(among(d.peer, of.addresses), everyPort) // itself
	for _, p := range c.policies {
		allowed, affected := p.rules[d]
		if !affected || !p.selects(of.pod) {
			continue
		}
		isolated = true
		rules = append(rules, fmt.Sprintf("# NetworkPolicy %s/%s", p.namespace, p.name))
		for _, r := range allowed {
			rules = append(rules, c.allowed(d, of, r)...)
		}
	}
	return rules, isolated
}

// allowed returns the rules of nftables for one rule of a policy.
func (c cluster) allowed(d direction, of endpoint, r rule) (rules []string) {
	peers := c.peers(d, r.peers)
	if len(r.ports) == 0 {
		return allow(peers, everyPort)
	}
	for _, p := range r.ports {
		switch {
		case p.name == "":
			rules = append(rules, allow(peers, numbered(p.protocol, p.first, p.last))...)
		case d == egress:
			rules = append(rules, c.allowedByName(r.peers, p)...)
		default:
			if number, ok := portNumber(of.pod, p.name, p.protocol); ok {
				rules = append(rules, allow(peers, numbered(p.protocol, number, number))...)
			}
		}
	}
	return rules
}

// allowedByName returns the rules for a port of other pods that has a name: which number that is, each pod
// says itself.
func (c cluster) allowedByName(peers []peer, p port) (rules []string) {
	addresses := map[int32][]netip.Addr{}
	for _, e := range c.pods {
		number, ok := portNumber(e.pod, p.name, p.protocol)
		if !ok {
			continue
		}
		for _, a := range e.addresses {
			matches := func(of peer) bool { return of.matches(e, a) }
			if len(peers) == 0 || slices.ContainsFunc(peers, matches) {
				addresses[number] = append(addresses[number], a)
			}
		}
	}
	for _, number := range slices.Sorted(maps.Keys(addresses)) {
		rules = append(rules, allow(among(egress.peer, addresses[number]), numbered(p.protocol, number, number))...)
	}
	return rules
}

// The matches that leave a choice open. A rule without any matches all packets.
const (
	everyPeer = ""
	everyPort = ""
)

// peers returns matches of which one has to hold.
func (c cluster) peers(d direction, peers []peer) (matches []string) {
	if len(peers) == 0 {
		return []string{everyPeer}
	}
	for _, p := range peers {
		if p.block != nil {
			matches = append(matches, within(d.peer, p.block))
			continue
		}
		var addresses []netip.Addr
		for _, e := range c.pods {
			for _, a := range e.addresses {
				if p.matches(e, a) {
					addresses = append(addresses, a)
				}
			}
		}
		matches = append(matches, among(d.peer, addresses)...)
	}
	return matches
}

// allow returns a rule for each match of a peer.
func allow(peers []string, port string) (rules []string) {
	for _, peer := range peers {
		words := slices.DeleteFunc([]string{peer, port, "return"}, func(word string) bool { return word == "" })
		rules = append(rules, strings.Join(words, " "))
	}
	return rules
}

// numbered matches the ports of a range, or all of the protocol when it begins with 0.
func numbered(protocol corev1.Protocol, first, last int32) string {
	name := strings.ToLower(string(protocol))
	switch first {
	case 0:
		return "meta l4proto " + name
	case last:
		return fmt.Sprintf("%s dport %d", name, first)
	default:
		return fmt.Sprintf("%s dport %d-%d", name, first, last)
	}
}

// among matches the addresses of a list, with one match for each family.
func among(field string, addresses []netip.Addr) (matches []string) {
	families := map[string][]string{}
	for _, a := range addresses {
		families[family(a)] = append(families[family(a)], a.String())
	}
	for _, f := range slices.Sorted(maps.Keys(families)) {
		matches = append(matches, fmt.Sprintf("%s %s { %s }", f, field, strings.Join(families[f], ", ")))
	}
	return matches
}

// within matches the addresses of a block.
func within(field string, b *block) string {
	f := family(b.prefix.Addr())
	match := fmt.Sprintf("%s %s %v", f, field, b.prefix)
	for _, e := range b.except {
		match += fmt.Sprintf(" %s %s != %v", f, field, e)
	}
	return match
}

// family is what nftables calls the protocol of an address.
func family(a netip.Addr) string {
	if a.Is4() {
		return "ip"
	}
	return "ip6"
}
