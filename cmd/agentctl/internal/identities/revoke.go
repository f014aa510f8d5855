package identities

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/internal/diff"
	"github.com/argomesh/argomesh/mesh/spire"
)

type revokeCommand struct {
	std            cli.Streams
	conn           *cli.Connection
	server         registration.Server
	dryRun         *cli.OneOf
	ignoreNotFound bool
}

func newRevokeCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &revokeCommand{std: std, conn: conn,
		dryRun: &cli.OneOf{Value: cli.DryRunNone, Allowed: []string{cli.DryRunNone, cli.DryRunServer}}}
	cmd := &cobra.Command{
		Use:     "revoke NAME...",
		Aliases: []string{"unregister"},
		Short:   "Take registrations back",
		Long: "Take registrations back: what \"agentctl identity register\" made under these names goes,\n" +
			"and nothing else.\n\n" +
			"SPIRE issues no more SVIDs then. Those that were issued stay valid until they expire; to\n" +
			"refuse an agent at once, take its SPIFFE ID from its Agent on the hub, or suspend that.",
		Example: "  agentctl identity revoke edge-1\n" +
			"  agentctl identity revoke edge-1 --spire-server unix:///tmp/spire-server/private/api.sock --dry-run",
		Args:              cli.Names(false),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) },
	}
	c.server.AddFlags(cmd)
	cli.AddEnumFlag(cmd, c.dryRun, "dry-run", "", "server: print what would go, and delete nothing")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = cli.DryRunServer
	cmd.Flags().BoolVar(&c.ignoreNotFound, "ignore-not-found", false, "exit with 0 when the registration does not exist")
	return cmd
}

func (c *revokeCommand) run(ctx context.Context, args []string) error {
	for _, text := range args {
		name, err := identity.ParseAgentName(text)
		if err != nil {
			return fmt.Errorf("the name of the registration: %w", err)
		}
		if c.server.IsSet() {
			err = c.revokeEntries(ctx, name)
		} else {
			err = c.revokeObjects(ctx, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *revokeCommand) revokeObjects(ctx context.Context, name identity.AgentName) error {
	target, err := registration.NewObjects(c.conn)
	if err != nil {
		return err
	}
	observed, err := target.Observe(ctx, name, nil)
	if err != nil {
		return err
	}
	plan := spire.PlanObjects(name, nil, observed)
	if len(plan) == 0 {
		return c.notFound(name, "the cluster at "+target.Host)
	}
	dry := c.dryRun.Value != cli.DryRunNone
	return registration.CarryOut(c.std.Out, plan, dry, func(done func(diff.Change[*unstructured.Unstructured])) error {
		return target.Apply(ctx, plan, dry, done)
	})
}

func (c *revokeCommand) revokeEntries(ctx context.Context, name identity.AgentName) error {
	doing := fmt.Sprintf("revoke %s", name)
	client, err := c.server.Connect(ctx, spiffeid.TrustDomain{})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // nothing is under way
	seen, err := client.Observe(ctx, name, nil)
	if err != nil {
		return c.server.Explain(err, doing)
	}
	plan := spire.PlanEntries(name, nil, seen.Entries)
	if len(plan) == 0 {
		return c.notFound(name, "the SPIRE server")
	}
	dry := c.dryRun.Value != cli.DryRunNone
	return registration.CarryOut(c.std.Out, plan, dry, func(done func(diff.Change[spire.Entry])) error {
		if dry {
			return nil
		}
		return c.server.Explain(client.ApplyEntries(ctx, plan, done), doing)
	})
}

func (c *revokeCommand) notFound(name identity.AgentName, where string) error {
	if c.ignoreNotFound {
		return nil
	}
	return fmt.Errorf("revoke %s: %s has nothing that agentctl registered under that name; \"agentctl identity list\" shows what there is", name, where)
}
