package install

import (
	"github.com/spf13/cobra"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

// NewSpokeCommand returns `agentctl spoke`.
func NewSpokeCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "spoke",
		Short: "Install the agent on a spoke, and remove it",
		Args:  cli.NoCommand,
		RunE:  cli.ShowHelp,
	}
	cmd.AddCommand(newSpokeInstallCommand(std, conn), newSpokeUpgradeCommand(std, conn),
		newUninstallCommand(std, conn, charts.Agent, "agent"))
	return cmd
}
