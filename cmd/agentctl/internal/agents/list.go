package agents

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

type listCommand struct {
	std      cli.Streams
	conn     *cli.Connection
	output   *cli.Output
	selector string
	unknown  bool
	watch    bool
}

func newListCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &listCommand{std: std, conn: conn, output: cli.NewOutput(append([]string{"wide"}, cli.ObjectFormats()...)...)}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the agents of the hub",
		Example: "  agentctl agent list -o wide\n  agentctl agent list -l env=prod -o name\n" +
			"  agentctl agent list -A -o 'jsonpath={range .items[*]}{.metadata.name} {.status.versions.agent}{\"\\n\"}{end}'",
		Args: cli.None,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	c.output.AddFlag(cmd)
	cmd.Flags().BoolVar(&c.unknown, "unknown", false,
		"the SPIFFE IDs that were refused since no Agent has them, the newest first")
	cmd.Flags().BoolVarP(&c.watch, "watch", "w", false, watchUsage)
	cmd.Flags().StringVarP(&c.selector, "selector", "l", "", "only Agents with these labels, such as env=prod,tier!=test")
	cmd.Flags().BoolVar(&c.output.NoHeaders, "no-headers", false, "print a table without its first line")
	cmd.Flags().BoolVarP(&c.output.AllNamespaces, "all-namespaces", "A", false, "list those of every namespace")
	cli.Register(cmd, "selector", cobra.NoFileCompletions)
	return cmd
}

func (c *listCommand) run(ctx context.Context) error {
	if _, err := labels.Parse(c.selector); err != nil {
		return fmt.Errorf("--selector: %s", cli.OneLine(err))
	}
	h, err := c.conn.Hub()
	if err != nil {
		return err
	}
	if c.output.AllNamespaces {
		if h, err = c.conn.HubIn(metav1.NamespaceAll); err != nil {
			return err
		}
	}
	if c.unknown {
		return c.strangers(ctx, h)
	}
	opts := metav1.ListOptions{LabelSelector: c.selector}
	if c.watch {
		if err := watchable(c.output); err != nil {
			return err
		}
		return h.Explain(newAgentWatch(c.std, h, c.output, opts).Run(ctx), "list agents")
	}
	if !c.output.IsTable() {
		list, err := h.Agents.List(ctx, opts)
		if err != nil {
			return h.Explain(err, "list agents")
		}
		return c.output.Object(c.std.Out, list)
	}
	table, err := h.Table(ctx, "", opts)
	if err != nil {
		return h.Explain(err, "list agents")
	}
	if len(table.Rows) == 0 {
		return c.none(ctx, h)
	}
	if err := c.output.PrintTable(c.std.Out, table); err != nil || c.output.NoHeaders {
		return err
	}
	return printUntaken(ctx, h, c.std.Out)
}

// none says that there is no agent. A namespace that does not exist is an error; one of which
// we may not know is as good as one that does.
func (c *listCommand) none(ctx context.Context, h *cli.Hub) error {
	if h.Namespace == metav1.NamespaceAll {
		_, err := fmt.Fprintln(c.std.Err, "No agents in any namespace.")
		return err
	}
	err := h.Rest.Get().AbsPath("/api/v1/namespaces", h.Namespace).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("list agents: namespace %s does not exist on the hub: name the one of Argo CD with --namespace, or list all with --all-namespaces", h.Namespace)
	}
	_, err = fmt.Fprintf(c.std.Err, "No agents in namespace %s.\n", h.Namespace)
	return err
}
