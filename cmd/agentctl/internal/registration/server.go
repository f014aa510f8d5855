package registration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/argomesh/argomesh/mesh/spire/serverapi"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/identity/inspect"
	"github.com/argomesh/argomesh/mesh/spire"
)

const (
	// SocketEnv is where the SPIFFE standard has the address of the Workload API.
	SocketEnv = "SPIFFE_ENDPOINT_SOCKET"
	// WorkloadAPITimeout bounds the wait for an SVID of ours.
	WorkloadAPITimeout = 10 * time.Second
)

// Server is how to reach the API of a SPIRE server.
type Server struct {
	address string
	socket  string
	adminID string
	domain  string
	timeout time.Duration
}

// ServerFlagNames are the flags that addFlags adds.
var ServerFlagNames = []string{"spire-server", "socket", "admin-id", "spire-trust-domain", "spire-timeout"}

// AddFlags adds the flags by which a SPIRE server is found.
func (s *Server) AddFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&s.address, "spire-server", "",
		"work on this SPIRE server, not on objects of spire-controller-manager: unix:///tmp/spire-server/private/api.sock, or host:8081")
	AddSocketFlag(cmd, &s.socket)
	flags.StringVar(&s.adminID, "admin-id", "",
		"SPIFFE ID of the administrator to be for a --spire-server host:port, if the Workload API offers several")
	flags.StringVar(&s.domain, "spire-trust-domain", "",
		"trust domain of a --spire-server host:port (default that of the SPIFFE IDs to register, else that of our own SVID)")
	flags.DurationVar(&s.timeout, "spire-timeout", 0, "how long one call of the SPIRE server may take (default 15s)")
	for _, name := range []string{"spire-server", "admin-id", "spire-trust-domain", "spire-timeout"} {
		cli.Register(cmd, name, cobra.NoFileCompletions)
	}
}

// AddSocketFlag adds --socket, the address of the Workload API.
func AddSocketFlag(cmd *cobra.Command, socket *string) {
	cmd.Flags().StringVar(socket, "socket", "",
		"address of the local Workload API, unix:///path or tcp://IP:port (default $"+SocketEnv+")")
	cli.Register(cmd, "socket", cobra.NoFileCompletions)
}

// IsSet reports whether a SPIRE server is named.
func (s *Server) IsSet() bool { return s.address != "" }

// WorkloadAPI returns the address of the local Workload API.
func WorkloadAPI(socket string) (string, error) {
	if socket == "" {
		socket = os.Getenv(SocketEnv)
	}
	if socket == "" {
		return "",
			fmt.Errorf("--socket is missing: the address of the local Workload API, such as unix:///tmp/spire-agent/public/api.sock; or set %s", SocketEnv)
	}
	return socket, nil
}

// Connect returns a client, which the caller closes. Over TCP the server must be that
// of td, unless a flag names another; zero stands for the trust domain of our own SVID.
func (s *Server) Connect(ctx context.Context, td spiffeid.TrustDomain) (*serverapi.Client, error) {
	cfg := serverapi.ClientConfig{Address: s.address, CallTimeout: s.timeout}
	_, local, err := serverapi.ParseAddress(s.address)
	if err != nil {
		return nil, fmt.Errorf("--spire-server: %w", err)
	}
	if s.domain != "" {
		if td, err = spiffeid.TrustDomainFromString(s.domain); err != nil {
			return nil, fmt.Errorf("--spire-trust-domain %q: %w", s.domain, err)
		}
	}
	if !local {
		svid, x, err := s.administrator(ctx)
		if err != nil {
			return nil, err
		}
		if td.IsZero() {
			td = svid.ID.TrustDomain()
		}
		if !x.Bundles.Has(td) {
			return nil,
				fmt.Errorf("--spire-server %s: our Workload API has no bundle of %s to check that server with: use an SVID of that trust domain, or federate with it", s.address, td)
		}
		cfg.Credentials = serverapi.AdminCredentials(svid, x.Bundles, td)
	}
	client, err := serverapi.NewClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("--spire-server: %w", err)
	}
	return client, nil
}

// administrator returns the SVID to present.
func (s *Server) administrator(ctx context.Context) (*x509svid.SVID, *workloadapi.X509Context, error) {
	const why = "a SPIRE server at host:port asks for the SVID of an administrator"
	socket, err := WorkloadAPI(s.socket)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", why, err)
	}
	ctx, cancel := context.WithTimeout(ctx, WorkloadAPITimeout)
	defer cancel()
	x, err := inspect.X509Context(ctx, socket)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", why, ExplainAsk(err))
	}
	if s.adminID == "" && len(x.SVIDs) > 1 {
		return nil, nil, fmt.Errorf("%s, and the Workload API offers %d: choose one with --admin-id", why, len(x.SVIDs))
	}
	for _, svid := range x.SVIDs {
		if s.adminID == "" || svid.ID.String() == s.adminID {
			return svid, x, nil
		}
	}
	return nil, nil, fmt.Errorf("%s, and the Workload API does not offer --admin-id %s", why, s.adminID)
}

// Explain returns err, which doing met, with the cure.
func (s *Server) Explain(err error, doing string) error {
	cure := ""
	switch {
	case err == nil:
		return nil
	case errors.Is(err, spire.ErrDenied):
		cure = "; be an administrator (an entry with admin, or admin_ids of the server), or use its unix socket where it runs"
	case errors.Is(err, spire.ErrUnavailable):
		cure = "; check that it runs, and --spire-server"
	case errors.Is(err, spire.ErrNoBundle):
		cure = " (agentctl identity federate)"
	}
	return fmt.Errorf("%s: %w%s", doing, err, cure)
}

// CheckManagers refuses to write what spire-controller-manager would delete at once.
// What is an entry of ours, or a federation relationship.
func CheckManagers(managers *spire.Managers, entries []spire.Entry, federation, force bool) error {
	deletes := federation && managers.Present()
	for _, e := range entries {
		deletes = deletes || managers.Deletes(e.ID)
	}
	if !deletes || force {
		return nil
	}
	return errors.New("spire-controller-manager looks after this SPIRE server and deletes what none of its objects declares: " +
		"leave out --spire-server, so that an object is made; or go on with --force")
}

// ExplainAsk adds the cure to an error of the Workload API.
func ExplainAsk(err error) error {
	if cure := inspect.Cure(err); cure != "" {
		return fmt.Errorf("%s: %s", cli.OneLine(err), cure)
	}
	return err
}
