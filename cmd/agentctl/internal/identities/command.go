package identities

import (
	"github.com/spf13/cobra"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

// NewCommand returns `agentctl identity`.
func NewCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "identity",
		Aliases: []string{"id"},
		Short:   "Register identities with SPIRE, federate, and look at what a Workload API hands out",
		Long: "Register identities with SPIRE, federate trust domains, and look at what the local\n" +
			"Workload API hands out.\n\n" +
			"register, list, revoke and federate work on objects of spire-controller-manager, in the\n" +
			"Kubernetes cluster that --context chooses, or with --spire-server on a SPIRE server itself.\n" +
			"They touch only what they made.",
		Args: cli.NoCommand,
		RunE: cli.ShowHelp,
	}
	cmd.AddCommand(
		newRegisterCommand(std, conn),
		newIdentityListCommand(std, conn),
		newRevokeCommand(std, conn),
		newFederateCommand(std, conn),
		newShowCommand(std, conn),
		newDoctorCommand(std, conn),
	)
	return cmd
}
