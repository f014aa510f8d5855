package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/credentials"

	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/identity/workload"
	"github.com/argomesh/argomesh/stream/call"
)

// way is how an agent and its principal prove themselves to each other: what
// principal.method and principal.gateway of an agent's configuration say.
type way struct {
	method     string
	gatewayIDs []string
	serverName string
	caFile     string
}

func (w *way) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&w.method, "method", identity.MethodX509, "how to prove ourselves to --principal, as principal.method of the configuration: spiffe-x509, spiffe-jwt or header")
	flags.StringArrayVar(&w.gatewayIDs, "gateway-id", nil, "SPIFFE ID of what ends TLS before the principal, as principal.gateway.spiffe_ids of the configuration; may be repeated")
	flags.StringVar(&w.serverName, "gateway-name", "", "host name of what ends TLS before the principal, as principal.gateway.server_name of the configuration")
	flags.StringVar(&w.caFile, "gateway-ca-file", "", "PEM file of the authorities for --gateway-name (default those of the system)")
	register(cmd, "method", cobra.FixedCompletions([]string{identity.MethodX509, identity.MethodJWT, identity.MethodHeader}, cobra.ShellCompDirectiveNoFileComp))
	for _, name := range []string{"gateway-id", "gateway-name"} {
		register(cmd, name, cobra.NoFileCompletions)
	}
}

// gateway reports whether somebody else than the principal ends TLS.
func (w way) gateway() bool { return len(w.gatewayIDs) > 0 || w.serverName != "" }

// presents reports whether our X.509-SVID is shown.
func (w way) presents() bool { return w.method != identity.MethodJWT }

// check returns the gateways that are named by their SPIFFE IDs, and what is wrong with
// the flags.
func (w way) check(dials, named bool) ([]spiffeid.ID, error) {
	switch {
	case w.method != identity.MethodX509 && w.method != identity.MethodJWT && w.method != identity.MethodHeader:
		return nil, fmt.Errorf("--method %q: use %s, %s or %s", w.method, identity.MethodX509, identity.MethodJWT, identity.MethodHeader)
	case w.method == identity.MethodX509 && w.gateway():
		return nil, fmt.Errorf("--gateway-id and --gateway-name are for --method %s and %s: with %s nobody ends TLS before the principal", identity.MethodJWT, identity.MethodHeader, identity.MethodX509)
	case len(w.gatewayIDs) > 0 && w.serverName != "":
		return nil, errors.New("--gateway-id and --gateway-name are two ways to know the gateway: keep one")
	case w.caFile != "" && w.serverName == "":
		return nil, errors.New("--gateway-ca-file is for --gateway-name: give that too")
	case !dials && (w.method != identity.MethodX509 || w.gateway()):
		return nil, errors.New("--method is for --principal: give its address too")
	case w.method == identity.MethodHeader && !w.gateway():
		return nil, errors.New("--method header: give the gateway, by --gateway-id or --gateway-name")
	case w.method == identity.MethodJWT && !named:
		return nil, errors.New("--method spiffe-jwt: give --principal-id, for whom the token is")
	}
	var ids []spiffeid.ID
	for _, text := range w.gatewayIDs {
		id, err := identity.ParseID(text)
		if err != nil {
			return nil, fmt.Errorf("--gateway-id: %w", err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// credentials are those of the agent, which note in met whom they meet.
func (w way) credentials(source *workload.Source, met *meeting, principal []spiffeid.ID) (credentials.TransportCredentials, error) {
	if w.method == identity.MethodX509 {
		return source.ClientCredentials(met.authorizer(principal)), nil
	}
	g := workload.Gateway{ServerName: w.serverName, Present: w.presents()}
	if w.serverName == "" {
		ids, err := w.check(true, len(principal) > 0)
		if err != nil {
			return nil, err
		}
		if len(ids) == 0 {
			ids = principal
		}
		g.Authorize = met.authorizer(ids)
	}
	if w.caFile != "" {
		g.Roots = func() (*x509.CertPool, error) { return readRoots(w.caFile) }
	}
	return source.GatewayCredentials(g)
}

func readRoots(file string) (*x509.CertPool, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--gateway-ca-file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("--gateway-ca-file: %s has no certificate in PEM", file)
	}
	return roots, nil
}

// prove returns ctx with what a call to the principal needs.
func (w way) prove(ctx context.Context, source *workload.Source, principal []spiffeid.ID) (context.Context, error) {
	if w.method != identity.MethodJWT {
		return ctx, nil
	}
	audiences := make([]string, 0, len(principal))
	for _, id := range principal {
		audiences = append(audiences, id.String())
	}
	proof := call.Mutual{Token: func(ctx context.Context) (string, time.Time, error) {
		svid, err := source.FetchToken(ctx, audiences...)
		if err != nil {
			return "", time.Time{}, err
		}
		return svid.Marshal(), svid.Expiry, nil
	}}
	ctx, _, _, err := proof.Authorize(ctx)
	return ctx, err
}

// otherPeerCure is what helps when TLS ends with somebody who is not accepted.
func (w way) otherPeerCure() string {
	if w.gateway() {
		return "correct principal.gateway.spiffe_ids of the agent, or --gateway-id, if that is the gateway; if it is not, correct the address"
	}
	return "correct principal.spiffe_ids of the agent, or --principal-id, if that is the principal; if a gateway ends TLS before it, give --method and --gateway-id; else correct the address"
}

// unauthenticatedCure is what helps when the principal does not take our proof.
func (w way) unauthenticatedCure() string {
	switch w.method {
	case identity.MethodJWT:
		return "check that this listener of the principal has method spiffe-jwt, that --principal-id is its own SPIFFE ID, and that its Workload API has JWT keys of our trust domain (agentctl identity show there)"
	case identity.MethodHeader:
		return "check that the listener behind the gateway has method header, and that the gateway forwards x-forwarded-client-cert with Cert and URI"
	}
	return "check that this listener of the principal has method spiffe-x509, or give --method as the agent's configuration has it"
}
