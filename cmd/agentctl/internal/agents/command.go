package agents

import (
	"github.com/spf13/cobra"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/roles"
)

// NewCommand returns `agentctl agent`.
func NewCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "agent",
		Aliases: []string{"agents"},
		Short:   "Create, list, get, change, suspend and delete agents, print the values of their charts, let held deletions happen, mend destinations, and print an agent's role",
		Long: "An agent is registered by an Agent object in the namespace of the hub's Argo CD.\n" +
			"These commands write and read that object; kubectl and GitOps do as well.",
		Args: cli.NoCommand,
		RunE: cli.ShowHelp,
	}
	cmd.AddCommand(
		newCreateCommand(std, conn),
		newListCommand(std, conn),
		newGetCommand(std, conn),
		newEditCommand(std, conn),
		newSetCommand(std, conn),
		newSuspendCommand(std, conn),
		newResumeCommand(std, conn),
		newValuesCommand(std, conn),
		newDeleteCommand(std, conn),
		newAcceptCommand(std, conn),
		newKeepCommand(std, conn),
		newReleaseCommand(std, conn),
		newRewriteCommand(std, conn),
		newRevokeTokensCommand(std, conn),
		roles.NewCommand(std),
	)
	return cmd
}
