package identities

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
)

// localIdentity looks at the Workload API of this machine, and if it is told to at what
// the hub makes of it: by the registry, or by dialling the principal.
type localIdentity struct {
	socket       string
	spiffeID     string
	hint         string
	audience     string
	peers        []string
	hub          bool
	principal    string
	principalIDs []string
	agent        string
	by           method
	timeout      time.Duration
}

func (l *localIdentity) addFlags(cmd *cobra.Command) {
	registration.AddSocketFlag(cmd, &l.socket)
	flags := cmd.Flags()
	flags.StringVar(&l.spiffeID, "spiffe-id", "",
		"SPIFFE ID to use if several are offered, as identity.spiffe_id of the configuration")
	flags.StringVar(&l.hint, "hint", "",
		"hint of the SVID to use if several are offered, as identity.hint of the configuration")
	flags.StringVar(&l.audience, "audience", "",
		"ask for JWT-SVIDs for this audience as well, such as the principal's SPIFFE ID")
	flags.StringArrayVar(&l.peers, "trusts", nil,
		"trust domain whose bundle is needed, such as that of the principal; may be repeated")
	flags.BoolVar(&l.hub, "hub", false, "ask the Agents of the hub, through its Kubernetes API, whose each SVID is")
	flags.StringVar(&l.principal, "principal", "",
		"host:port of a principal to dial: whether it accepts this identity, and what its own is")
	flags.StringArrayVar(&l.principalIDs, "principal-id", nil,
		"SPIFFE ID that the principal must have, as principal.spiffe_ids of the configuration; with --hub, the one that no agent has; may be repeated")
	flags.StringVar(&l.agent, "agent", "",
		"name of the agent for which the principal must know this identity, as name of the configuration")
	l.by.addFlags(cmd)
	flags.DurationVar(&l.timeout, "timeout", registration.WorkloadAPITimeout, "how long each of these may take to answer")
	for _, name := range []string{"spiffe-id", "hint", "audience", "trusts", "principal", "principal-id", "agent",
		"timeout"} {
		cli.Register(cmd, name, cobra.NoFileCompletions)
	}
}
