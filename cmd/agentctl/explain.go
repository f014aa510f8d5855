package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/internal/reasons"
)

func newExplainCommand(std cli.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "explain WORD...",
		Short: "Explain a reason, a rule or an error code, and what helps",
		Long: "Explain a word by which Argomesh says what is wrong: the reason of a condition, of an Event or\n" +
			"of a parked object, the rule that refused a call, the first word of an error of the Redis\n" +
			"proxy, the type of a condition of an Application. It needs no hub; " + reasons.Page + " has all.",
		Example: "  agentctl explain SPIFFEIDConflict\n  agentctl explain AGENTAWAY",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("a word is missing: %s", cmd.UseLine())
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var words []string
			for _, e := range reasons.All() {
				words = append(words, e.Word)
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			var problems []error
			for _, word := range args {
				problems = append(problems, explainWord(std, word))
			}
			return errors.Join(problems...)
		},
	}
}

func explainWord(std cli.Streams, word string) error {
	found := reasons.Find(word)
	if len(found) == 0 {
		return fmt.Errorf("this release knows no reason, rule or error code %q; %s has all", word, reasons.Page)
	}
	for _, e := range found {
		text := fmt.Sprintf("%s (%s)\n%s\ncause: %s\n", e.Word, e.Where, e.Meaning, e.Cause)
		if e.Cure != "" {
			text += "cure: " + e.Cure + "\n"
		}
		if _, err := fmt.Fprint(std.Out, text+e.See()+"\n"); err != nil {
			return err
		}
	}
	return nil
}
