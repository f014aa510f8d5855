package mesh

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/cmd/internal/meshconfig"
)

func newMeshDiffCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &meshTarget{std: std, conn: conn}
	cmd := &cobra.Command{
		Use:   "diff (istio | spire) --config FILE",
		Short: "Print what mesh apply would change",
		Long: "Print what \"agentctl mesh apply\" would create (+), change (~), delete (-) and refuse (!), field by\n" +
			"field. The API server checks it all; nothing is stored.",
		Example: "  agentctl mesh diff istio --config principal.yaml",
	}
	c.complete(cmd, func(ctx context.Context, what string) error { return c.apply(ctx, what, true) })
	return cmd
}

func newMeshApplyCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &meshTarget{std: std, conn: conn}
	cmd := &cobra.Command{
		Use:   "apply (istio | spire) --config FILE",
		Short: "Make a hub's mesh objects what they should be",
		Long: "Apply what \"agentctl mesh render\" prints to the hub, by server-side apply, as a principal with\n" +
			"mesh.live set to apply does by itself. What others changed in these objects is changed back. Only\n" +
			"what this or the principal has applied before, or what another writer applied of that output, is\n" +
			"touched, and deleted once nothing asks for it; if something is in the way nothing is done.",
		Example: "  agentctl mesh diff istio --config principal.yaml\n  agentctl mesh apply istio --config principal.yaml",
	}
	c.complete(cmd, func(ctx context.Context, what string) error { return c.apply(ctx, what, false) })
	return cmd
}

// meshTarget is what the commands have in common that compare a hub with what is
// rendered.
type meshTarget struct {
	std    cli.Streams
	conn   *cli.Connection
	config string
	agents agentSource
}

// complete adds flags and arguments to cmd.
func (c *meshTarget) complete(cmd *cobra.Command, run func(ctx context.Context, what string) error) {
	cmd.ValidArgs = []string{meshconfig.PartIstio, meshconfig.PartSPIRE}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] != meshconfig.PartIstio && args[0] != meshconfig.PartSPIRE {
			return fmt.Errorf("one of %s and %s is expected: %s", meshconfig.PartIstio, meshconfig.PartSPIRE, cmd.UseLine())
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), args[0]) }
	cmd.Flags().StringVar(&c.config, "config", "", "the principal's YAML file; of it namespace and mesh are read")
	c.agents.addFlag(cmd)
}

// observe returns what the hub should have of a product, and has.
func (c *meshTarget) observe(ctx context.Context, what string) (State, meshSettings, error) {
	cfg, err := loadMesh(config.File{Path: c.config})
	if err != nil {
		return State{}, cfg, err
	}
	agents, err := c.agents.agents(ctx, c.std, c.conn)
	if err != nil {
		return State{}, cfg, err
	}
	s, err := Observe(ctx, c.conn, cfg.Namespace, cfg.Mesh, what, agents)
	return s, cfg, err
}

// apply carries out the plan, or shows it.
func (c *meshTarget) apply(ctx context.Context, what string, dryRun bool) error {
	found, _, err := c.observe(ctx, what)
	if err != nil {
		return err
	}
	return found.Carry(ctx, c.std.Out, dryRun)
}
