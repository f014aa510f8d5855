package check

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/internal/process"
)

type checkCommand struct {
	std        cli.Streams
	conn       *cli.Connection
	output     *cli.OneOf
	pre        bool
	hubContext string
	hub        string
	path       pathFlags // of a spoke
}

func newOutput() *cli.OneOf { return &cli.OneOf{Allowed: []string{"wide", "json", "yaml"}} }

// NewCommand returns `agentctl check`.
func NewCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Find out what is wrong with hub or spoke, and what helps",
		Args:  cli.NoCommand,
		RunE:  cli.ShowHelp,
	}
	cmd.AddCommand(newSideCommand(std, conn, Hub), newSideCommand(std, conn, Spoke), newPathCommand(std))
	return cmd
}

func newSideCommand(std cli.Streams, conn *cli.Connection, side Side) *cobra.Command {
	c := &checkCommand{std: std, conn: conn, output: newOutput()}
	but := ""
	if side == Spoke {
		but = ", but for\na Job that tries --principal, and is removed again"
	}
	cmd := &cobra.Command{
		Use:   string(side),
		Short: fmt.Sprintf("Find out what is wrong with the %s, and what helps", side),
		Long: fmt.Sprintf("Look at the %s, through its Kubernetes API and, by port-forward, at what the running %s says of\n", side, side.program()) +
			"itself, and say what is wrong and what helps. Nothing is written" + but + ". What could not be asked is unknown.\n\n" +
			"It exits with 0 when all is well but for warnings, with 1 when there is a problem, and with 3 when there\n" +
			"is none but something could not be asked. Each word is explained by \"agentctl explain WORD\".",
		Example: fmt.Sprintf("  agentctl check %s --context %s\n  agentctl check %s --context %s --pre", side, side, side, side),
		Args:    cli.None,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context(), side) },
	}
	cli.AddEnumFlag(cmd, c.output, "output", "o", "wide also lists what is well; or json or yaml")
	cmd.Flags().BoolVar(&c.pre, "pre", false, "look only at what has to be there before an install")
	if side == Spoke {
		cmd.Flags().StringVar(&c.hubContext, "hub-context", "",
			"context of the kubeconfig for the hub, to look at it as well and at what both have to agree on")
		cmd.Flags().StringVar(&c.hub, "hub-namespace", cli.DefaultNamespace, "namespace of the hub's Argo CD, where the Agents live")
		cli.Register(cmd, "hub-context", conn.CompleteContexts)
		cli.Register(cmd, "hub-namespace", cobra.NoFileCompletions)
		c.path.addFlags(cmd)
	}
	return cmd
}

// Errors by which `agentctl check` ends.
var (
	ErrProblems = errors.New("there are problems: see above")
	ErrUnknown  = errors.New("not all could be asked: see above")
)

// unknownCode is the exit code when there is no problem, and something could not be asked.
const unknownCode = 3

func (c *checkCommand) run(ctx context.Context, side Side) error {
	if err := c.path.check(c.pre); err != nil {
		return err
	}
	facts, err := c.observe(ctx, side, c.conn, c.conn.Namespace)
	if err != nil {
		return err
	}
	if r := &facts.Chart.Rights; c.pre {
		r.Of = "this user"
		r.Lacks.is, r.Lacks.err = askBefore(ctx, c.conn, facts)
	}
	all := Run(facts, c.pre)
	if c.path.to.Address != "" {
		found, err := c.path.observe(ctx, c.conn)
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	if c.hubContext != "" {
		found, err := c.ofHub(ctx, facts)
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	Sort(all)
	if err := printAll(c.std, c.output, all); err != nil {
		return err
	}
	return verdict(all)
}

// observe reads one side, before an install no more than what that needs.
func (c *checkCommand) observe(ctx context.Context, side Side, conn *cli.Connection, namespace string) (*Facts, error) {
	if c.pre {
		return ObserveBefore(ctx, side, conn, namespace, nil)
	}
	return Observe(ctx, side, conn, namespace)
}

// verdict is how the command ends.
func verdict(sorted []Finding) error {
	if len(sorted) == 0 {
		return nil
	}
	switch sorted[0].Level {
	case Problem:
		return ErrProblems
	case Unknown:
		return &process.CodeError{Err: ErrUnknown, Code: unknownCode}
	case Warning, Fine:
	}
	return nil
}

// ofHub finds what is wrong with the hub of a spoke, and with the two. That it cannot be reached is found, not
// an error, since what is wrong with the spoke is known.
func (c *checkCommand) ofHub(ctx context.Context, spoke *Facts) ([]Finding, error) {
	hub, err := c.observe(ctx, Hub, c.conn.In(c.hubContext), c.hub)
	var away *UnreachableError
	if errors.As(err, &away) {
		f := found(Unknown, "KubernetesTooOld", "Kubernetes", "cannot be asked: "+cli.OneLine(err),
			"see that the hub's API server runs, and that --hub-context names it")
		f.Side = Hub
		return []Finding{f}, nil
	}
	if err != nil {
		return nil, err
	}
	all := Run(hub, c.pre)
	if !c.pre {
		all = append(all, RunBoth(hub, spoke)...)
	}
	return all, nil
}

func printAll(std cli.Streams, output *cli.OneOf, all []Finding) error {
	if output.Value == "json" || output.Value == "yaml" {
		return (&cli.Output{OneOf: *output}).Structured(std.Out, map[string]any{"findings": all})
	}
	return show(std.Out, all, output.Value == "wide")
}

// show prints a line for each finding, with the cure. What is well is counted; it is listed when
// wide is set.
func show(w io.Writer, sorted []Finding, wide bool) error {
	fine := 0
	for _, f := range sorted {
		if f.Level == Fine {
			fine++
			if !wide {
				continue
			}
		}
		if _, err := fmt.Fprintf(w, "%s: %s: %s\n", f.Level, f.Side, f); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%d of %d things are as they should be\n", fine, len(sorted))
	return err
}
