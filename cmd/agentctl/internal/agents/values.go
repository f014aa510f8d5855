package agents

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/chartvalues"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

// Placeholders for what only the hub's operator knows.
const (
	noPrincipal   = "PRINCIPAL_HOST:PORT"
	noPrincipalID = "spiffe://TRUST_DOMAIN/argomesh/principal"
)

type valuesCommand struct {
	std                    cli.Streams
	conn                   *cli.Connection
	principal, principalID string
}

func newValuesCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &valuesCommand{std: std, conn: conn}
	cmd := &cobra.Command{
		Use:   "values NAME --principal HOST:PORT --principal-id ID",
		Short: "Print the values of the chart for an agent's spoke",
		Long: "Print the values of the chart argomesh-agent for an agent that is registered: its name, its\n" +
			"mode, the principal, the namespaces that its Agent maps, and the live access that the Agent\n" +
			"allows. The spoke's owner decides about the latter: both sides have to allow a call.",
		Example: "  agentctl agent values edge-1 --principal argomesh.hub.example:443 \\\n" +
			"    --principal-id spiffe://hub.example/argomesh/principal > edge-1.yaml\n" +
			"  agentctl spoke install edge-1 --context edge-1 --values edge-1.yaml",
		Args:              cli.Names(true),
		ValidArgsFunction: conn.CompleteName,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case c.principal == "":
				return fmt.Errorf("--principal is missing: host and port where the spoke reaches the principal: %s", cmd.UseLine())
			case c.principalID == "":
				return fmt.Errorf("--principal-id is missing: the SPIFFE ID of the principal, or of the gateway before it: %s",
					cmd.UseLine())
			}
			if err := chartvalues.CheckPrincipal(c.principal, c.principalID); err != nil {
				return err
			}
			return c.run(cmd.Context(), args[0])
		},
	}
	chartvalues.AddPrincipalFlags(cmd, &c.principal, &c.principalID)
	return cmd
}

func (c *valuesCommand) run(ctx context.Context, name string) error {
	h, err := c.conn.Hub()
	if err != nil {
		return err
	}
	agent, _, err := h.Agent(ctx, name, fmt.Sprintf("values of agent %q", name))
	if err != nil {
		return err
	}
	values, err := chartvalues.YAML(agent, c.principal, c.principalID)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(c.std.Out, values)
	return err
}
