package check

import (
	"crypto/x509"
	"fmt"
	"strings"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/stream/probe"
)

// Principal is where a spoke is to reach it, and whom it is to meet there.
type Principal struct {
	// Address is host:port.
	Address string
	// ID is its SPIFFE ID. Empty means any.
	ID string
	// Gateway says that a gateway before it terminates TLS, on purpose, as the methods spiffe-jwt and header have it.
	Gateway bool
}

// ofPath tells what a connection met on its way to the principal.
func ofPath(to Principal, p probe.Path) []Finding {
	about := "principal " + to.Address
	switch {
	case !p.Connected:
		return []Finding{found(Problem, "PrincipalUnreachable", about, unreachable(p.Err), "")}
	case p.Certificate == nil:
		return []Finding{found(Problem, "NoTLS", about, "does not answer by TLS: "+cli.OneLine(p.Err), "")}
	}
	var out []Finding
	switch ids := spiffeIDs(p.Certificate); {
	case len(ids) == 0 && !to.Gateway:
		out = append(out, found(Problem, "TLSEnded", about, fmt.Sprintf("shows a certificate of %s, signed by %s, and not an SVID:"+
			" something on the way terminates TLS", nameIn(p.Certificate), cli.CleanText(p.Certificate.Issuer.String())), ""))
	case len(ids) > 0 && to.ID != "" && ids[0] != to.ID:
		out = append(out, found(Problem, "OtherPrincipal", about, fmt.Sprintf("is %s, and not %s", ids[0], to.ID), ""))
	}
	if !p.HTTP2 {
		out = append(out, found(Problem, "NoGRPC", about, "does not speak HTTP/2", ""))
	}
	if len(out) == 0 {
		return well("PrincipalUnreachable", about, "is reached, and shows a certificate of "+nameIn(p.Certificate))
	}
	return out
}

// unreachable says why there is no connection, without what gRPC says around it.
func unreachable(err error) string {
	text := cli.OneLine(err)
	if _, after, found := strings.Cut(text, "Error while dialing: "); found {
		text = strings.Trim(after, `"`)
	}
	return "is not reached: " + text
}

// spiffeIDs are the URIs of a certificate that SPIFFE IDs are among (SPIFFE X509-SVID, section 2).
func spiffeIDs(c *x509.Certificate) (out []string) {
	for _, uri := range c.URIs {
		if uri.Scheme == "spiffe" {
			out = append(out, uri.String())
		}
	}
	return out
}

// nameIn is how people call whom a certificate is of.
func nameIn(c *x509.Certificate) string {
	switch ids := spiffeIDs(c); {
	case len(ids) > 0:
		return cli.CleanText(ids[0])
	case len(c.DNSNames) > 0:
		return cli.CleanText(c.DNSNames[0])
	}
	return cli.CleanText(c.Subject.String())
}
