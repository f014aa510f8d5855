package identities

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/review"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/identity/inspect"
)

type doctorCommand struct {
	std    cli.Streams
	conn   *cli.Connection
	output *cli.Output
	local  localIdentity
	config string // file of an agent whose policy is checked
	// principalConfig is the file of a principal, of whose hub the AppProjects are asked.
	principalConfig string
}

func newDoctorCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &doctorCommand{std: std, conn: conn, output: cli.NewOutput("wide", "json", "yaml")}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out what is wrong with the identity of this process, and what helps",
		Long: "Find out what is wrong with the identity that the local Workload API hands out, and what\n" +
			"helps. It exits with 1 when there is a problem, and with 0 when there are none or only\n" +
			"warnings. What is well it lists when nothing is wrong, and with -o wide.\n\n" +
			"Run it where the principal or agent runs, as the same user: the SPIRE agent decides by who\n" +
			"asks. On a spoke give --principal, and --principal-id and --agent as the agent's\n" +
			"configuration has them: the principal says whether it would accept this identity, and as which\n" +
			"agent. On the hub give --hub, and with --principal-id the principal's own.\n\n" +
			"With --agent-config it also lists what the policy in that file refuses of what the hub has\n" +
			"on the spoke, whose Kubernetes API the kubeconfig is then for: before an upgrade of the\n" +
			"agent, or a change of its policy, is in force. With --principal-config it lists what the\n" +
			"AppProjects of the hub do not admit of the Applications of managed agents: before an upgrade\n" +
			"of the principal stops sending it. Both also tell which of its keys and values the program\n" +
			"would refuse, and that the cluster of the kubeconfig is another than the file is for: the hub\n" +
			"instead of a spoke, a spoke, or one without Argo CD. With one of them and no --socket no\n" +
			"identity is looked at.",
		Example: "  # On a spoke\n" +
			"  agentctl identity doctor --principal principal.hub.example:8443 --principal-id spiffe://hub.example/argomesh/principal --agent edge-1\n\n" +
			"  # On the hub\n" +
			"  agentctl identity doctor --hub --principal-id spiffe://hub.example/argomesh/principal\n\n" +
			"  # On a spoke, before its agent is upgraded\n" +
			"  agentctl identity doctor --agent-config agent.yaml\n\n" +
			"  # On the hub, before its principal is upgraded\n" +
			"  agentctl identity doctor --principal-config principal.yaml",
		Args: cli.None,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	c.output.AddFlag(cmd)
	c.local.addFlags(cmd)
	cmd.Flags().StringVar(&c.config, "agent-config", "",
		"the agent's YAML file: what its policy refuses of what is on the spoke, through the spoke's Kubernetes API")
	cmd.Flags().StringVar(&c.principalConfig, "principal-config", "",
		"the principal's YAML file: which Applications of managed agents the hub's AppProjects do not admit, through the hub's Kubernetes API")
	return cmd
}

// inspectsIdentity reports whether the local identity is inspected. Who only has a configuration
// checked may be where there is none.
func (c *doctorCommand) inspectsIdentity() bool {
	l := c.local
	return c.config == "" && c.principalConfig == "" || l.socket != "" || os.Getenv(registration.SocketEnv) != "" ||
		l.hub || l.principal != ""
}

// ErrUnwell is how `agentctl identity doctor` ends when one of its findings is a problem.
var ErrUnwell = errors.New("there are problems: see above")

func (c *doctorCommand) run(ctx context.Context) error {
	var s Report
	var err error
	if c.inspectsIdentity() {
		s, err = c.local.report(ctx, c.conn)
	}
	found := s.findings
	var failures []error // of what was to be reviewed
	for _, review := range []struct {
		file string
		of   func(context.Context, *cli.Connection, config.File) ([]inspect.Finding, error)
	}{{c.config, review.Policy}, {c.principalConfig, review.Admission}} {
		if review.file == "" {
			continue
		}
		reviewed, reviewErr := review.of(ctx, c.conn, config.File{Path: review.file})
		found, failures = append(found, reviewed...), append(failures, reviewErr)
	}
	if cure := inspect.Cure(err); cure != "" {
		found, err = append(found,
			inspect.Finding{Level: inspect.Problem, About: "workload api", Says: cli.OneLine(err), Cure: cure}), nil
	}
	err = errors.Join(append(failures, err)...)
	if len(found) == 0 {
		return err // of a flag, or a file
	}
	// What was found is told in any case.
	if printErr := c.print(found); printErr != nil {
		return printErr
	}
	if err == nil && inspect.Worst(found) == inspect.Problem {
		return ErrUnwell
	}
	return err
}

func (c *doctorCommand) print(found []inspect.Finding) error {
	if c.output.IsTable() {
		return printFindings(c.std.Out, found, c.output.Value == "wide")
	}
	return c.output.Structured(c.std.Out, map[string]any{"findings": found})
}

// printFindings prints one line for each finding, with the cure. What is well it counts beside
// what is wrong; it lists it when nothing is wrong, so that it shows what was looked at, and
// when wide is set.
func printFindings(w io.Writer, found []inspect.Finding, wide bool) error {
	fine := 0
	wide = wide || inspect.Worst(found) == inspect.Fine
	for _, f := range found {
		line := fmt.Sprintf("%s: %s %s", f.Level, f.About, f.Says)
		switch {
		case f.Level != inspect.Fine:
			line += "; cure: " + f.Cure
		case !wide:
			fine++
			continue
		}
		if _, err := fmt.Fprintln(w, cli.CleanText(line)); err != nil {
			return err
		}
	}
	if fine == 0 {
		return nil
	}
	well := fmt.Sprintf("%d things are as they should be; -o wide lists them.", fine)
	if fine == 1 {
		well = "One thing is as it should be; -o wide says which."
	}
	_, err := fmt.Fprintln(w, well)
	return err
}
