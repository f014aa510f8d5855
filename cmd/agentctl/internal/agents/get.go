package agents

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/internal/reasons"
)

type getCommand struct {
	std    cli.Streams
	conn   *cli.Connection
	output *cli.Output
	watch  bool
}

func newGetCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &getCommand{std: std, conn: conn, output: cli.NewOutput(append([]string{"wide"}, cli.ObjectFormats()...)...)}
	cmd := &cobra.Command{
		Use:               "get NAME...",
		Aliases:           []string{"describe", "inspect", "show"},
		Short:             "Show agents by name",
		Example:           "  agentctl agent get edge-1 -o yaml\n  agentctl agent get edge-1 --watch",
		Args:              cli.Names(false),
		ValidArgsFunction: conn.CompleteNames,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) },
	}
	c.output.AddFlag(cmd)
	cmd.Flags().BoolVarP(&c.watch, "watch", "w", false, watchUsage)
	cmd.Flags().BoolVar(&c.output.NoHeaders, "no-headers", false, "print a table without its first line")
	return cmd
}

func (c *getCommand) run(ctx context.Context, agents []string) error {
	h, err := c.conn.Hub()
	if err != nil {
		return err
	}
	if c.watch {
		if err := watchable(c.output); err != nil {
			return err
		}
		return watchNames(ctx, c.std, h, c.output, agents)
	}
	if c.output.IsTable() {
		return c.printTable(ctx, h, agents)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.AgentKind + "List"))
	var problems []error // of some of them; the others are shown, as with kubectl
	for _, name := range agents {
		obj, err := h.Agents.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			problems = append(problems, h.Explain(err, fmt.Sprintf("get agent %q", name)))
			continue
		}
		list.Items = append(list.Items, *obj)
	}
	switch {
	case len(agents) == 1 && len(list.Items) == 1:
		problems = append(problems, c.output.Object(c.std.Out, &list.Items[0]))
	case len(list.Items) > 0:
		problems = append(problems, c.output.Object(c.std.Out, list))
	}
	return errors.Join(problems...)
}

// printTable prints the rows of several replies as one table.
func (c *getCommand) printTable(ctx context.Context, h *cli.Hub, agents []string) error {
	var whole *metav1.Table
	var there []string
	var problems []error // as above
	for _, name := range agents {
		table, err := h.Table(ctx, name, metav1.ListOptions{})
		if err != nil {
			problems = append(problems, h.Explain(err, fmt.Sprintf("get agent %q", name)))
			continue
		}
		there = append(there, name)
		if whole == nil {
			whole = table
		} else {
			whole.Rows = append(whole.Rows, table.Rows...)
		}
	}
	if whole != nil {
		problems = append(problems, c.output.PrintTable(c.std.Out, whole))
		if !c.output.NoHeaders { // else lines for a program
			problems = append(problems, c.printDetails(ctx, h, there))
		}
	}
	return errors.Join(problems...)
}

// printDetails prints what does not fit a table: deletions held, and in the wide
// form the history and the parked objects.
func (c *getCommand) printDetails(ctx context.Context, h *cli.Hub, agents []string) error {
	for _, name := range agents {
		agent, _, err := h.Agent(ctx, name, fmt.Sprintf("get agent %q", name))
		if err != nil {
			return err
		}
		if _, err := fmt.Fprint(c.std.Out, c.details(agent)); err != nil {
			return err
		}
	}
	return nil
}

func (c *getCommand) details(agent *v1alpha1.Agent) string {
	out := describeConditions(agent)
	if history := agent.Status.History; history != nil && c.output.Value == "wide" {
		out += fmt.Sprintf("\nAgent %s has history %s with Kubernetes cluster %s, tokens %s.\n",
			agent.Name, history.ID, history.ClusterUID, strings.Join(history.Tokens, ", "))
	}
	if c.output.Value == "wide" {
		out += describeParked(agent)
	}
	if agent.Status.DeletionsHeld != nil {
		reason := string(agent.Status.DeletionsHeld.Reason)
		out += "\n" + describeHeld(agent)
		if see := reasons.See(reason); see != "" {
			out += reason + ": " + see + "\n"
		}
		out += fmt.Sprintf("Let them happen with: agentctl agent accept-deletions %s\n", agent.Name)
		if agent.Status.DeletionsHeld.WithWorkloads > 0 {
			out += fmt.Sprintf("Keep the workloads with: agentctl agent keep-workloads %s\n", agent.Name)
		}
	}
	return out
}

// describeConditions says what is not as it should be, one line for each condition; empty for
// nothing. What is held has lines of its own.
func describeConditions(agent *v1alpha1.Agent) string {
	var b strings.Builder
	for _, c := range agent.Status.Conditions {
		if c.Reason == "AsExpected" || c.Reason == v1alpha1.ConditionConnected ||
			c.Type == v1alpha1.ConditionDeletionsHeld && agent.Status.DeletionsHeld != nil {
			continue
		}
		fmt.Fprintf(&b, "%s is %s since %s: %s", c.Type, c.Status, c.LastTransitionTime.UTC().Format(time.RFC3339), c.Reason)
		if c.Message != "" {
			fmt.Fprintf(&b, ": %s", c.Message)
		}
		b.WriteString(cli.SeeReason(c.Reason) + "\n")
	}
	if b.Len() == 0 {
		return ""
	}
	return fmt.Sprintf("\nOf agent %s:\n", agent.Name) + b.String()
}

// describeParked names the parked objects, each with what is wrong; empty for none.
func describeParked(agent *v1alpha1.Agent) string {
	parked := agent.Status.Parked
	if len(parked) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nOf agent %s these are not applied, and are tried again:\n", agent.Name)
	for _, o := range parked {
		where := o.Name
		if o.Namespace != "" {
			where = o.Namespace + "/" + o.Name
		}
		fmt.Fprintf(&b, "  %s %s: %s", o.Kind, where, o.Reason)
		if o.Message != "" {
			fmt.Fprintf(&b, ": %s", o.Message)
		}
		b.WriteString("\n")
	}
	if more := agent.Status.Counts.Parked - int64(len(parked)); more > 0 {
		fmt.Fprintf(&b, "  and %d more\n", more)
	}
	said := map[string]bool{}
	for _, o := range parked {
		if see := reasons.See(o.Reason); see != "" && !said[o.Reason] {
			said[o.Reason] = true
			fmt.Fprintf(&b, "%s: %s\n", o.Reason, see)
		}
	}
	return b.String()
}
