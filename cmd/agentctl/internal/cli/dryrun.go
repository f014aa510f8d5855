package cli

import "github.com/spf13/cobra"

// Values of --dry-run.
const (
	DryRunNone   = "none"
	DryRunClient = "client"
	DryRunServer = "server"
)

// AddDryRunFlag adds --dry-run, which alone shows the difference.
func AddDryRunFlag(cmd *cobra.Command, dryRun *OneOf) {
	AddEnumFlag(cmd, dryRun, "dry-run", "",
		"client: only print what would be written; server: print the difference from what is there, and store nothing")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = DryRunServer
}

// NewDryRun returns the value of --dry-run: no dry run.
func NewDryRun() *OneOf {
	return &OneOf{Value: DryRunNone, Allowed: []string{DryRunNone, DryRunClient, DryRunServer}}
}
