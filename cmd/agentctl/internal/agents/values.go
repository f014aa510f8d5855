package agents

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/accesswords"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/identity"
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
			if err := CheckPrincipal(c.principal, c.principalID); err != nil {
				return err
			}
			return c.run(cmd.Context(), args[0])
		},
	}
	AddPrincipalFlags(cmd, &c.principal, &c.principalID)
	return cmd
}

// AddPrincipalFlags adds --principal and --principal-id.
func AddPrincipalFlags(cmd *cobra.Command, address, id *string) {
	cmd.Flags().StringVar(address, "principal", "",
		"host and port where the spoke reaches the principal, for the values of its chart")
	cmd.Flags().StringVar(id, "principal-id", "",
		"SPIFFE ID of the principal, or of the gateway before it, for those values")
	for _, name := range []string{"principal", "principal-id"} {
		cli.Register(cmd, name, cobra.NoFileCompletions)
	}
}

// CheckPrincipal refuses what is no address or no SPIFFE ID; empty ones are not known.
func CheckPrincipal(address, id string) error {
	if host, port, err := net.SplitHostPort(address); address != "" && (err != nil || host == "" || port == "") {
		return fmt.Errorf("--principal %q: host:port is expected", address)
	}
	if id == "" {
		return nil
	}
	if _, err := identity.ParseID(id); err != nil {
		return fmt.Errorf("--principal-id: %w", err)
	}
	return nil
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
	values, err := spokeValues(agent, c.principal, c.principalID)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(c.std.Out, values)
	return err
}

// spokeValues returns the values of the agent's chart, as YAML.
func spokeValues(agent *v1alpha1.Agent, principal, principalID string) (string, error) {
	raw, err := yaml.Marshal(SpokeValues(agent, principal, principalID))
	return string(raw), err
}

// SpokeValues returns the values of the chart argomesh-agent for a registered agent, and for a
// principal at that address, of that SPIFFE ID.
func SpokeValues(agent *v1alpha1.Agent, principal, principalID string) map[string]any {
	settings := map[string]any{
		"name": agent.Name, "mode": string(agent.Spec.Mode),
		"principal": map[string]any{"address": principal, "spiffe_ids": []any{principalID}},
	}
	if access := agent.Spec.Access; access != nil && access.Enabled {
		on := map[string]any{}
		for _, s := range accesswords.All() {
			if s.On(access) {
				key, value := valuesOf(s.Name)
				on[key] = value
			}
		}
		settings["access"] = on
	}
	var further []any
	if agent.Spec.Mapping != nil {
		for _, mapped := range agent.Spec.Mapping.Namespaces {
			if mapped.Spoke != "" {
				further = append(further, mapped.Spoke)
			}
		}
	}
	if len(further) > 0 {
		settings["mapping"] = map[string]any{"namespaces": further}
	}
	return map[string]any{"config": settings}
}

// valuesOf is a switch of live access, on, in the agent's own configuration.
func valuesOf(name string) (key string, value any) {
	switch name {
	case accesswords.Read:
		return "enabled", true
	case accesswords.Masked:
		return "secrets", string(v1alpha1.SecretsMasked)
	}
	return strings.ReplaceAll(name, "-", "_"), true
}
