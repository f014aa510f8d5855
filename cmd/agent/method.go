package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream"
	"github.com/argomesh/argomesh/stream/call"
)

// Gateway is what ends TLS before the principal: a load balancer, the gateway of a
// mesh, or a proxy beside this agent. At most one of its ways is set; with none the
// principal itself ends TLS.
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

// needsProof reports whether TLS ends before the principal, which then has to prove
// itself.
func (p Principal) needsProof() bool { return p.Method != identity.MethodX509 }

// validateMethod reports every problem with method and gateway.
func (p Principal) validateMethod() error {
	var problems []error
	wrong := func(key, format string, args ...any) {
		problems = append(problems, config.Invalid(key, format, args...))
	}
	ways := p.Gateway.ways()
	switch p.Method {
	case identity.MethodX509:
		if ways > 0 {
			wrong("gateway", "is for the methods that allow TLS to end before the principal: remove it, or set method to %s or %s", identity.MethodJWT, identity.MethodHeader)
		}
	case identity.MethodJWT:
	case identity.MethodHeader:
		if ways == 0 {
			wrong("gateway", "is not set: give the spiffe_ids or the server_name of what ends TLS before the principal, or plaintext for a proxy beside this agent")
		}
	default:
		wrong("method", "%q is not a method: use %s, %s or %s", p.Method, identity.MethodX509, identity.MethodJWT, identity.MethodHeader)
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
		wrong("gateway.plaintext", "would send to %q in clear text: use an address of loopback such as 127.0.0.1:8443, or unix:///path", p.Address)
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

// authentication is how this agent and its principal prove themselves to each other,
// on every connection between them.
type authentication struct {
	call.Mutual
	credentials credentials.TransportCredentials
	proves      func() time.Time // nil: not by our SVID
}

func (p Principal) authentication(source *workload.Source) (authentication, error) {
	principal := identity.AllowIDs(p.SPIFFEIDs...)
	if p.Method == identity.MethodX509 {
		return authentication{credentials: source.ClientCredentials(principal), proves: svidExpiry(source)}, nil
	}
	var a authentication
	var err error
	if a.credentials, err = p.gatewayCredentials(source); err != nil {
		return authentication{}, err
	}
	a.Verify = func(proof string, nonce stream.Nonce) error {
		own, err := source.GetX509SVID()
		if err != nil {
			return err
		}
		peer, err := source.VerifyToken(proof, own.ID.String(), nonce.Audience())
		if err != nil {
			return err
		}
		return principal(peer.ID)
	}
	switch {
	case p.Method == identity.MethodJWT:
		audiences := make([]string, 0, len(p.SPIFFEIDs))
		for _, id := range p.SPIFFEIDs {
			audiences = append(audiences, id.String())
		}
		token := source.Token(audiences...)
		a.Token = func(ctx context.Context) (string, time.Time, error) {
			svid, renewAt, err := token.Get(ctx)
			if err != nil {
				return "", time.Time{}, err
			}
			return svid.Marshal(), renewAt, nil
		}
	case !p.Gateway.Plaintext: // else it is not our SVID that the gateway sees
		a.proves = svidExpiry(source)
	}
	return a, nil
}

func (p Principal) gatewayCredentials(source *workload.Source) (credentials.TransportCredentials, error) {
	if p.Gateway.Plaintext {
		return insecure.NewCredentials(), nil
	}
	gateway := workload.Gateway{ServerName: p.Gateway.ServerName, Present: p.Method == identity.MethodHeader}
	if p.Gateway.ServerName == "" {
		ids := p.Gateway.SPIFFEIDs
		if len(ids) == 0 {
			ids = p.SPIFFEIDs
		}
		gateway.Authorize = identity.AllowIDs(ids...)
	}
	if file := p.Gateway.CAFile; file != "" {
		gateway.Roots = func() (*x509.CertPool, error) { return readRoots(file) }
	}
	return source.GatewayCredentials(gateway)
}

func readRoots(file string) (*x509.CertPool, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("principal.gateway.ca_file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("principal.gateway.ca_file: %s has no certificate in PEM", file)
	}
	return roots, nil
}

// svidExpiry is client.Config.Proves.
func svidExpiry(source *workload.Source) func() time.Time {
	return func() time.Time {
		svid, err := source.GetX509SVID()
		if err != nil {
			return time.Time{}
		}
		return svid.Certificates[0].NotAfter
	}
}
