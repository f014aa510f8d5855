package mesh

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/identity"
)

// MaxCallers is the largest number of SPIFFE IDs that may call one port, agents
// apart, of whom there are up to [MaxAgents].
const MaxCallers = 100

// Reach says who reaches the ports of a principal through a mesh, and what of that
// the mesh is to enforce. Whatever is not said here is refused by what is rendered.
// The registry checks every agent in every case.
type Reach struct {
	// Stream is where agents connect.
	Stream StreamPort
	// ResourceProxy and RedisProxy are where Argo CD connects. The zero value means
	// that there is no such proxy.
	ResourceProxy, RedisProxy Port
	// Metrics is where Prometheus scrapes. The zero value means that no one does.
	Metrics Port
	// Agents are the registered SPIFFE IDs, by agent. An agent that may not connect,
	// such as a suspended one, is not among them.
	Agents map[identity.AgentName][]spiffeid.ID
}

// StreamPort is the port of the stream service, and the way there.
type StreamPort struct {
	// Port is that of the principal's pod. Its Callers are not used: they are the
	// agents, or the gateway.
	Port uint16
	// Exposure, Method and Policy go together as in [Table]. An empty policy is
	// [Strongest].
	Exposure Exposure
	// Method is one of identity's Method constants.
	Method string
	Policy Policy
	// Upstream is where the principal takes what a proxy of its pod brings. With
	// method header it is on loopback or a unix socket. Zero means the same port on
	// loopback.
	Upstream Address
	// Services are the full names of the gRPC services that pass where a proxy reads
	// requests; nothing else does.
	Services []string
	// Gateway is the SPIFFE ID of the gateway on the way. It is zero exactly for
	// [ExposureDirect].
	Gateway spiffeid.ID
	// Hub is where agents connect, as seen from their spokes.
	Hub HubAddress
	// MaxConnections bounds the connections of agents at a time; more wait or are
	// closed. Zero means 20,000.
	MaxConnections uint32
}

// HubAddress is the hub as seen from spokes.
type HubAddress struct {
	// Host is a DNS name; agents ask for it by SNI.
	Host string
	Port uint16
}

// Port is a TCP port of the principal's pod and who may connect to it, by exact
// SPIFFE IDs: Argo CD's service accounts for the proxies, Prometheus for metrics.
type Port struct {
	Number uint16
	// Callers may be empty: then no one gets there.
	Callers []spiffeid.ID
	// Upstream is where the process behind it listens. Zero means the same port on
	// loopback.
	Upstream Address
}

// IsZero reports whether there is no such port.
func (p Port) IsZero() bool { return p.Number == 0 }

// AgentIDs returns the SPIFFE IDs of all agents, sorted, each once.
func (r Reach) AgentIDs() []spiffeid.ID {
	var all []spiffeid.ID
	for _, ids := range r.Agents {
		all = append(all, ids...)
	}
	return SortedIDs(all)
}

// TrustDomains returns the trust domains of the agents, sorted, each once.
func (r Reach) TrustDomains() []spiffeid.TrustDomain {
	all := map[spiffeid.TrustDomain]bool{}
	for _, ids := range r.Agents {
		for _, id := range ids {
			all[id.TrustDomain()] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), spiffeid.TrustDomain.Compare)
}

// SortedIDs returns ids sorted by their text, each once. It keeps no hold of ids.
func SortedIDs(ids []spiffeid.ID) []spiffeid.ID {
	out := slices.SortedFunc(slices.Values(ids),
		func(a, b spiffeid.ID) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(out)
}

// Check reports every problem of what s says of a mesh: first of all a promise that
// cannot be kept, with what to do instead (see [Table]). The errors wrap
// [identity.ErrInvalid]. It is nil when s has no Reach.
func Check(s Snapshot) error {
	if s.Reach == nil {
		return nil
	}
	c := checker{}
	if s.Self.IsZero() || s.Self.Path() == "" {
		c.problem("the principal has no SPIFFE ID: name that of its service account")
	}
	c.stream(s.Reach.Stream)
	c.ports(*s.Reach)
	c.agents(s.Reach.Agents)
	return errors.Join(c.problems...)
}

// checker collects problems.
type checker struct{ problems []error }

func (c *checker) problem(format string, args ...any) {
	c.problems = append(c.problems, fmt.Errorf("mesh: "+format+": %w", append(args, identity.ErrInvalid)...))
}

func (c *checker) id(whose string, id spiffeid.ID) {
	if err := identity.CheckID(id); err != nil {
		c.problems = append(c.problems, fmt.Errorf("mesh: %s: %w", whose, err))
	}
}

func (c *checker) stream(p StreamPort) {
	if _, err := Enforce(p.Exposure, p.Method, p.Policy); err != nil {
		c.problems = append(c.problems, err)
	}
	if p.Port == 0 {
		c.problem("the stream has no port: give that of the principal's pod, such as 8443")
	}
	if !isDNSName(p.Hub.Host) || p.Hub.Port == 0 {
		c.problem("the hub's address %q, port %d, is not a DNS name in lower case and a port: agents name it, and gateways route by it", p.Hub.Host, p.Hub.Port)
	}
	terminator := TLSTerminatorOf(p.Exposure, p.Method)
	if terminator != "" && terminator != TerminatorPrincipal && len(p.Services) == 0 {
		c.problem("no gRPC services of the stream, so %s would let all requests through: name them", terminator)
	}
	switch {
	case p.Exposure == ExposureDirect && !p.Gateway.IsZero():
		c.problem("gateway %s is not on the way of exposure %s: leave it out", p.Gateway, p.Exposure)
	case p.Exposure != ExposureDirect:
		c.id("the gateway of exposure "+string(p.Exposure), p.Gateway)
	}
	if p.Method != identity.MethodHeader {
		return
	}
	if !p.Upstream.IsLocal() {
		c.problem("method %s with an upstream of %q would believe every caller: give an address on loopback or a unix socket, where only the pod's own proxy comes", p.Method, p.Upstream)
	}
	if tcp, ok := p.Upstream.TCP(); ok && tcp.Port() == p.Port {
		c.problem("method %s needs another port for its upstream than the one that is exposed, %d: a proxy that is not there would leave it open", p.Method, p.Port)
	}
}

func (c *checker) ports(r Reach) {
	taken := map[uint16]string{r.Stream.Port: "the stream"}
	for _, named := range []struct {
		name string
		port Port
	}{{"the resource proxy", r.ResourceProxy}, {"the Redis proxy", r.RedisProxy}, {"metrics", r.Metrics}} {
		name, port := named.name, named.port
		if port.IsZero() {
			if len(port.Callers) > 0 {
				c.problem("%s: callers, and no port", name)
			}
			continue
		}
		if other := taken[port.Number]; other != "" {
			c.problem("%s and %s have the same port %d", other, name, port.Number)
		}
		taken[port.Number] = name
		if len(port.Callers) > MaxCallers {
			c.problem("%s: %d callers, at most %d are served", name, len(port.Callers), MaxCallers)
		}
		for _, id := range port.Callers {
			c.id("caller of "+name, id)
		}
	}
}

func (c *checker) agents(agents map[identity.AgentName][]spiffeid.ID) {
	if len(agents) > MaxAgents {
		c.problem("%d agents, at most %d are served", len(agents), MaxAgents)
	}
	owner := map[spiffeid.ID]identity.AgentName{}
	for _, name := range slices.SortedFunc(maps.Keys(agents),
		func(a, b identity.AgentName) int { return strings.Compare(a.String(), b.String()) }) {
		if name.IsZero() {
			c.problem("an agent without a name")
		}
		for _, id := range agents[name] {
			c.id("agent "+name.String(), id)
			if other, taken := owner[id]; taken && other != name {
				c.problem("%s is of two agents, %s and %s: a SPIFFE ID belongs to one", id, other, name)
			}
			owner[id] = name
		}
	}
}

// maxNameBytes and maxLabelBytes are the longest DNS name and label (RFC 1035,
// section 2.3.4).
const maxNameBytes, maxLabelBytes = 253, 63

// isDNSName reports whether s is a host name in lower case, without wildcard and
// final dot.
func isDNSName(s string) bool {
	if s == "" || len(s) > maxNameBytes {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > maxLabelBytes || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return true
}
