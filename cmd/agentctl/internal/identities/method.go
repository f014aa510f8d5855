package identities

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream/probe"
)

// method is how an agent and its principal prove themselves to each other: what
// principal.method and principal.gateway of an agent's configuration say.
type method struct {
	method     string
	gatewayIDs []string
	serverName string
	caFile     string
	plaintext  bool
}

func (w *method) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&w.method, "method", identity.MethodX509,
		"how to prove ourselves to --principal, as principal.method of the configuration: "+identity.MethodNames(nil))
	flags.StringArrayVar(&w.gatewayIDs, "gateway-id", nil,
		"SPIFFE ID of what terminates TLS before the principal, as principal.gateway.spiffe_ids of the configuration; may be repeated")
	flags.StringVar(&w.serverName, "gateway-name", "",
		"host name of what terminates TLS before the principal, as principal.gateway.server_name of the configuration")
	flags.StringVar(&w.caFile, "gateway-ca-file", "",
		"PEM file of the authorities for --gateway-name (default those of the system)")
	flags.BoolVar(&w.plaintext, "gateway-plaintext", false,
		"speak to a proxy beside us without TLS, as principal.gateway.plaintext of the configuration; --principal is on loopback, or unix:///path")
	var names []string
	for _, m := range identity.Methods() {
		names = append(names, m.Name)
	}
	cli.Register(cmd, "method", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	for _, name := range []string{"gateway-id", "gateway-name"} {
		cli.Register(cmd, name, cobra.NoFileCompletions)
	}
}

// expectedPeer is whom to dial, and what is expected there.
type expectedPeer struct {
	principal []spiffeid.ID      // whom it may be; empty for anyone
	gateway   []spiffeid.ID      // who may terminate TLS before it; empty when they are not known by that
	agent     identity.AgentName // for whom it is to take us; zero for whomever
}

// gateway reports whether someone else than the principal terminates TLS.
func (w method) gateway() bool { return w.gateways() > 0 }

// gateways counts in how many ways it is known.
func (w method) gateways() (n int) {
	for _, set := range []bool{len(w.gatewayIDs) > 0, w.serverName != "", w.plaintext} {
		if set {
			n++
		}
	}
	return n
}

// check returns what is wrong with the flags. Dials says that a principal is dialled,
// named that it is known by its SPIFFE ID.
func (w method) check(dials, named bool) error {
	m, known := identity.MethodNamed(w.method)
	switch {
	case !known:
		return fmt.Errorf("--method %q: use %s", w.method, identity.MethodNames(nil))
	case m.Gateway == identity.NoGateway && w.gateway():
		return fmt.Errorf("--gateway-id, --gateway-name and --gateway-plaintext are for --method %s: with %s TLS terminates at the principal", identity.MethodNames(identity.Method.HasGateway), m.Name)
	case w.gateways() > 1:
		return errors.New("--gateway-id, --gateway-name and --gateway-plaintext are ways to know the gateway: keep one")
	case w.caFile != "" && w.serverName == "":
		return errors.New("--gateway-ca-file is for --gateway-name: give that too")
	case !dials && (w.method != identity.MethodX509 || w.gateway()):
		return errors.New("--method is for --principal: give its address too")
	case m.Gateway == identity.NeedsGateway && !w.gateway():
		return errors.New("--method " + m.Name + ": give the gateway, by --gateway-id, --gateway-name or --gateway-plaintext")
	case w.method == identity.MethodJWT && !named:
		return errors.New("--method spiffe-jwt: give --principal-id, for whom the token is")
	}
	return nil
}

// checkAddress returns what is wrong with the address of a principal.
func (w method) checkAddress(address string) error {
	path, unix := strings.CutPrefix(address, "unix://")
	host, port, err := net.SplitHostPort(address)
	ip, _ := netip.ParseAddr(host) // a name may mean anything
	switch {
	case unix && !w.plaintext:
		return fmt.Errorf("%q is a unix socket, which is for --gateway-plaintext", address)
	case unix && strings.HasPrefix(path, "/"):
		return nil
	case err != nil || host == "" || port == "":
		return fmt.Errorf("%q is not a host:port", address)
	case w.plaintext && !ip.IsLoopback():
		return fmt.Errorf("%q is not on loopback, and what we say would be in clear text", address)
	}
	return nil
}

// of is the method that the flags say, for a principal.
func (w method) of(to expectedPeer) workload.Method {
	m := workload.Method{Name: w.method, Principal: to.principal, GatewayIDs: to.gateway, GatewayName: w.serverName,
		Plaintext: w.plaintext}
	if w.caFile != "" {
		m.GatewayRoots = func() (*x509.CertPool, error) {
			roots, err := workload.ReadRoots(w.caFile)
			if err != nil {
				return nil, fmt.Errorf("--gateway-ca-file: %w", err)
			}
			return roots, nil
		}
	}
	return m
}

// cure is what helps against a problem.
func (w method) cure(p probe.Problem) string {
	switch p {
	case probe.Unusable:
		return "correct --principal and the other flags that say how to reach it"
	case probe.NoToken:
		return "check the log of the SPIRE agent, which asks its server for each"
	case probe.OtherPeer:
		return w.otherPeerCure()
	case probe.NotRegistered:
		return "on the hub: agentctl agent create with this SPIFFE ID, or agentctl agent resume if it is suspended"
	case probe.Unproven:
		return w.unprovenCure()
	case probe.NoPrincipal:
		return "correct the address: something else answers there"
	case probe.Silent:
		return "check the address, the network and the firewall between"
	case probe.Ended:
		if w.method == identity.MethodJWT {
			return "check that this listener of the principal has method spiffe-jwt, which asks for no certificate"
		}
		return "on the hub: see the log of the principal for the reason; most often its Workload API has no bundle of our trust domain (agentctl identity doctor --hub there)"
	case probe.NoHandshake:
		return "check the address, that the principal runs, and that our Workload API has the bundle of its trust domain"
	case probe.OtherAgent:
		return "correct name in the agent's configuration, or on the hub give the SPIFFE ID to the other Agent (agentctl agent edit)"
	}
	return ""
}

// otherPeerCure is what helps when TLS terminates with someone who is not accepted.
func (w method) otherPeerCure() string {
	if w.gateway() {
		return "correct principal.gateway.spiffe_ids of the agent, or --gateway-id, if that is the gateway; if it is not, correct the address"
	}
	return "correct principal.spiffe_ids of the agent, or --principal-id, if that is the principal; if a gateway terminates TLS before it, give --method and --gateway-id; else correct the address"
}

// unprovenCure is what helps when the principal does not take our proof.
func (w method) unprovenCure() string {
	switch w.method {
	case identity.MethodJWT:
		return "check that this listener of the principal has method spiffe-jwt, that --principal-id is its own SPIFFE ID, and that its Workload API has JWT keys of our trust domain (agentctl identity show there)"
	case identity.MethodHeader:
		return "check that the listener behind the gateway has method header, and that the gateway forwards x-forwarded-client-cert with Cert and URI"
	}
	return "check that this listener of the principal has method spiffe-x509, or give --method as the agent's configuration has it"
}
