package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/argomesh/argomesh/identity/inspect"
)

type doctorCommand struct {
	std    streams
	conn   *connection
	output *output
	local  localIdentity
}

func newDoctorCommand(std streams, conn *connection) *cobra.Command {
	c := &doctorCommand{std: std, conn: conn, output: newOutput("wide", "json", "yaml")}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out what is wrong with the identity of this process, and what helps",
		Long: "Find out what is wrong with the identity that the local Workload API hands out, and what\n" +
			"helps. It exits with 1 when there is a problem, and with 0 when there are none or only\n" +
			"warnings; -o wide shows also what is well.\n\n" +
			"Run it where the principal or agent runs, as the same user: the SPIRE agent decides by who\n" +
			"asks. On a spoke give --principal, and --principal-id and --agent as the agent's\n" +
			"configuration has them: the principal says whether it would accept this identity, and as which\n" +
			"agent. On the hub give --hub.",
		Example: "  # On a spoke\n" +
			"  agentctl identity doctor --principal principal.hub.example:8443 --principal-id spiffe://hub.example/argomesh/principal --agent edge-1\n\n" +
			"  # On the hub\n" +
			"  agentctl identity doctor --hub",
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	c.output.addFlag(cmd)
	c.local.addFlags(cmd)
	return cmd
}

var errUnwell = errors.New("there are problems: see above")

func (c *doctorCommand) run(ctx context.Context) error {
	s, err := c.local.look(ctx, c.conn)
	found := s.findings
	if cure := inspect.Cure(err); cure != "" {
		found, err = []inspect.Finding{{Level: inspect.Problem, About: "workload api", Says: oneLine(err), Cure: cure}}, nil
	}
	if len(found) == 0 {
		return err // of a flag
	}
	// What was found before the hub failed to answer is told in any case.
	if printErr := c.print(found); printErr != nil {
		return printErr
	}
	if err == nil && inspect.Worst(found) == inspect.Problem {
		return errUnwell
	}
	return err
}

func (c *doctorCommand) print(found []inspect.Finding) error {
	if c.output.isTable() {
		return printFindings(c.std.out, found, c.output.value == "wide")
	}
	return c.output.structured(c.std.out, map[string]any{"findings": found})
}

// printFindings prints one line for each finding, with the cure; what is well only when
// wide is set.
func printFindings(w io.Writer, found []inspect.Finding, wide bool) error {
	fine := 0
	for _, f := range found {
		line := fmt.Sprintf("%s: %s %s", f.Level, f.About, f.Says)
		switch {
		case f.Level != inspect.Fine:
			line += "; cure: " + f.Cure
		case !wide:
			fine++
			continue
		}
		if _, err := fmt.Fprintln(w, cleanText(line)); err != nil {
			return err
		}
	}
	if fine == 0 {
		return nil
	}
	well := fmt.Sprintf("%d things are as they should be.", fine)
	if fine == 1 {
		well = "One thing is as it should be."
	}
	_, err := fmt.Fprintln(w, well)
	return err
}
