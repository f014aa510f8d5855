package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// ShowHelp runs a command that only has others below it.
func ShowHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// NoCommand refuses what was meant as a command below cmd and is none.
func NoCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cure := fmt.Sprintf("see %q", cmd.CommandPath()+" --help")
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		cure = fmt.Sprintf("did you mean %q?", cmd.CommandPath()+" "+near[0])
	}
	return fmt.Errorf("unknown command %q; %s", cmd.CommandPath()+" "+args[0], cure)
}

// Names returns a check that a command has at least one agent name, or exactly
// one.
func Names(exactlyOne bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return fmt.Errorf("the name of an agent is missing: %s", cmd.UseLine())
		case exactlyOne && len(args) > 1:
			return fmt.Errorf("one agent at a time, not %d: %s", len(args), cmd.UseLine())
		}
		return nil
	}
}

// None refuses arguments.
func None(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unexpected argument %q: %s", args[0], cmd.UseLine())
}
