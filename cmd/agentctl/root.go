package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
)

func newRootCommand(std streams) *cobra.Command {
	conn := newConnection(std.err)
	root := &cobra.Command{
		Use:   "agentctl",
		Short: "Register the agents of an Argomesh hub, and their identities",
		Long: "agentctl registers the agents of an Argomesh hub through the hub's Kubernetes API, and their\n" +
			"identities with SPIRE. It finds out what is wrong with an identity, and makes what the Envoy and\n" +
			"the mesh around the principal need.\n\n" +
			"It exits with 0 when all went well, and with 1 after an error, whose one line says what helps.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       buildinfo.Read().String(),
		Args:          noCommand,
		RunE:          showHelp,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see %q", err, cmd.CommandPath()+" --help")
	})
	conn.addFlags(root)
	root.AddCommand(newAgentCommand(std, conn), newHubCommand(std, conn), newIdentityCommand(std, conn), newEnvoyCommand(std), newMeshCommand(std, conn), newExplainCommand(std), newVersionCommand(std, conn))
	return root
}

// showHelp runs a command that only has others below it.
func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// noCommand refuses what was meant as a command below cmd and is none.
func noCommand(cmd *cobra.Command, args []string) error {
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

// names returns a check that a command has at least one agent name, or exactly
// one.
func names(exactlyOne bool) cobra.PositionalArgs {
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

// none refuses arguments.
func none(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unexpected argument %q: %s", args[0], cmd.UseLine())
}

// oneOf is a flag value out of a closed set.
type oneOf struct {
	value   string
	allowed []string
}

var errNotAllowed = errors.New("unknown value")

func (o *oneOf) String() string { return o.value }
func (o *oneOf) Type() string   { return "string" }

// Set implements pflag.Value.
func (o *oneOf) Set(s string) error {
	for _, a := range o.allowed {
		if s == a {
			o.value = s
			return nil
		}
	}
	return fmt.Errorf("%w, one of %s is expected", errNotAllowed, joinOr(o.allowed))
}

// complete offers the allowed values to the shell.
func (o *oneOf) complete(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return o.allowed, cobra.ShellCompDirectiveNoFileComp
}
