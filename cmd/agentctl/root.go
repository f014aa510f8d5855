package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/agents"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/bundle"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/check"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/connectivity"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/hub"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/identities"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/install"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/kubeconfig"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/mesh"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/status"
	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
)

func newRootCommand(std cli.Streams) *cobra.Command {
	conn := cli.NewConnection(std.Err)
	root := &cobra.Command{
		Use:   "agentctl",
		Short: "Install Argomesh, and register the agents of a hub and their identities",
		Long: "agentctl installs Argomesh on hub and spokes. It registers the agents of a hub through the hub's\n" +
			"Kubernetes API, and their identities with SPIRE. It finds out what is wrong with an identity, and makes what the Envoy and\n" +
			"the mesh around the principal need.\n\n" +
			"It exits with 0 when all went well, and with 1 after an error, whose one line says what helps.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       buildinfo.Read().String(),
		Args:          cli.NoCommand,
		RunE:          cli.ShowHelp,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %q", err, cmd.CommandPath()+" --help")
	})
	conn.AddFlags(root)
	root.AddCommand(agents.NewCommand(std, conn), hub.NewCommand(std, conn), identities.NewCommand(std, conn),
		newEnvoyCommand(std), mesh.NewCommand(std, conn), install.NewSpokeCommand(std, conn), bundle.NewCommand(std, conn),
		status.NewCommand(std, conn), check.NewCommand(std, conn), kubeconfig.NewCommand(std, conn),
		connectivity.NewCommand(std, conn), newExplainCommand(std),
		newVersionCommand(std, conn))
	return root
}
