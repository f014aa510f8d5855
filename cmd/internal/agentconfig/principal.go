package agentconfig

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/identity"
)

// Principal is whom the agent dials.
type Principal struct {
	Address   string        `koanf:"address" help:"host:port of the principal, or of what is before it; unix:///path with gateway.plaintext"`
	SPIFFEIDs []spiffeid.ID `koanf:"spiffe_ids" help:"the exact SPIFFE IDs of which the principal must present one; several for a planned move"`
	Method    string        `koanf:"method" help:"how this agent proves who it is: spiffe-x509 by mutual TLS with the principal, spiffe-jwt by a JWT-SVID, header by mutual TLS with a gateway"`
	Gateway   Gateway       `koanf:"gateway"`
}

// Validate reports every problem.
func (p Principal) Validate() error {
	var problems []error
	if host, port, err := net.SplitHostPort(p.Address); !p.local() && (err != nil || host == "" || port == "") {
		problems = append(problems,
			config.Invalid("address",
				"%q is not host:port: give the address of the principal, such as principal.example.org:443", p.Address))
	}
	if len(p.SPIFFEIDs) == 0 {
		problems = append(problems,
			config.Invalid("spiffe_ids", "is empty: give the SPIFFE ID of the principal; without it every server is refused"))
	}
	for _, id := range p.SPIFFEIDs {
		if err := identity.CheckID(id); err != nil {
			problems = append(problems, config.Invalid("spiffe_ids", "%v", err))
		}
	}
	problems = append(problems, p.validateMethod())
	return errors.Join(problems...)
}

// Gateway is what terminates TLS before the principal: a load balancer, the gateway of a
// mesh, or a proxy beside this agent. At most one of its ways is set; with none the
// principal itself terminates TLS.
type Gateway struct {
	SPIFFEIDs  []spiffeid.ID `koanf:"spiffe_ids" help:"the exact SPIFFE IDs of which the gateway must present one"`
	ServerName string        `koanf:"server_name" help:"the host name for which the gateway must present a certificate"`
	CAFile     string        `koanf:"ca_file" help:"file of PEM certificates that sign for server_name, read at each connection; empty for the roots of the system"`
	Plaintext  bool          `koanf:"plaintext" help:"no TLS: a proxy beside this agent speaks it; the address is one of loopback, or a unix socket"`
}

// ways counts how many ways there are to know the gateway.
func (g Gateway) ways() (n int) {
	for _, set := range []bool{len(g.SPIFFEIDs) > 0, g.ServerName != "", g.Plaintext} {
		if set {
			n++
		}
	}
	return n
}

// TrustDomains are those of whom the agent has to trust: the principal, and what is before it.
func (p Principal) TrustDomains() []spiffeid.TrustDomain {
	var out []spiffeid.TrustDomain
	for _, id := range slices.Concat(p.SPIFFEIDs, p.Gateway.SPIFFEIDs) {
		out = append(out, id.TrustDomain())
	}
	return out
}

// NeedsProof reports whether TLS terminates before the principal, which then has to prove
// itself.
func (p Principal) NeedsProof() bool {
	m, known := identity.MethodNamed(p.Method)
	return !known || m.HasGateway() // one that validate refuses proves nothing by itself
}

// validateMethod reports every problem with method and gateway.
func (p Principal) validateMethod() error {
	var problems []error
	wrong := func(key, format string, args ...any) {
		problems = append(problems, config.Invalid(key, format, args...))
	}
	ways := p.Gateway.ways()
	switch m, known := identity.MethodNamed(p.Method); {
	case !known:
		wrong("method", "%q is not a method: use %s", p.Method, identity.MethodNames(nil))
	case m.Gateway == identity.NoGateway && ways > 0:
		wrong("gateway", "is for the methods that allow TLS to end before the principal: remove it, or set method to %s",
			identity.MethodNames(identity.Method.HasGateway))
	case m.Gateway == identity.NeedsGateway && ways == 0:
		wrong("gateway",
			"is not set: give the spiffe_ids or the server_name of what terminates TLS before the principal, or plaintext for a proxy beside this agent")
	}
	if ways > 1 {
		wrong("gateway", "is told in several ways: keep one of spiffe_ids, server_name and plaintext")
	}
	if p.Gateway.CAFile != "" && p.Gateway.ServerName == "" {
		wrong("gateway.ca_file", "is for server_name: set that too, or remove it")
	}
	for _, id := range p.Gateway.SPIFFEIDs {
		if err := identity.CheckID(id); err != nil {
			wrong("gateway.spiffe_ids", "%v", err)
		}
	}
	switch {
	case p.Gateway.Plaintext && !p.local():
		wrong("gateway.plaintext",
			"would send to %q in clear text: use an address of loopback such as 127.0.0.1:8443, or unix:///path", p.Address)
	case !p.Gateway.Plaintext && strings.HasPrefix(p.Address, unixScheme):
		wrong("address", "%q is a unix socket, which is for gateway.plaintext: set that too", p.Address)
	}
	return errors.Join(problems...)
}

const unixScheme = "unix://"

// local reports whether the address is one of this machine, or pod, for sure.
func (p Principal) local() bool {
	if path, ok := strings.CutPrefix(p.Address, unixScheme); ok {
		return strings.HasPrefix(path, "/")
	}
	host, port, err := net.SplitHostPort(p.Address)
	if err != nil || port == "" {
		return false
	}
	ip, err := netip.ParseAddr(host) // a name may mean anything
	return err == nil && ip.IsLoopback()
}
