package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

type listCommand struct {
	std      streams
	conn     *connection
	output   *output
	selector string
	unknown  bool
	watch    bool
}

func newListCommand(std streams, conn *connection) *cobra.Command {
	c := &listCommand{std: std, conn: conn, output: newOutput("wide", "json", "yaml", "name", jsonPathFormat)}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the agents of the hub",
		Example: "  agentctl agent list -o wide\n  agentctl agent list -l env=prod -o name\n" +
			"  agentctl agent list -A -o 'jsonpath={range .items[*]}{.metadata.name} {.status.versions.agent}{\"\\n\"}{end}'",
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	c.output.addFlag(cmd)
	cmd.Flags().BoolVar(&c.unknown, "unknown", false, "the SPIFFE IDs that were refused since no Agent has them, the newest first")
	cmd.Flags().BoolVarP(&c.watch, "watch", "w", false, watchUsage)
	cmd.Flags().StringVarP(&c.selector, "selector", "l", "", "only Agents with these labels, such as env=prod,tier!=test")
	cmd.Flags().BoolVar(&c.output.noHeaders, "no-headers", false, "print a table without its first line")
	cmd.Flags().BoolVarP(&c.output.allNamespaces, "all-namespaces", "A", false, "list those of every namespace")
	register(cmd, "selector", cobra.NoFileCompletions)
	return cmd
}

func (c *listCommand) run(ctx context.Context) error {
	if _, err := labels.Parse(c.selector); err != nil {
		return fmt.Errorf("--selector: %s", oneLine(err))
	}
	h, err := c.conn.hub()
	if err != nil {
		return err
	}
	if c.output.allNamespaces {
		if h, err = c.conn.hubIn(metav1.NamespaceAll); err != nil {
			return err
		}
	}
	if c.unknown {
		return c.strangers(ctx, h)
	}
	opts := metav1.ListOptions{LabelSelector: c.selector}
	if c.watch {
		if err := c.output.watchable(); err != nil {
			return err
		}
		return h.explain(newAgentWatch(c.std, h, c.output, opts).Run(ctx), "list agents")
	}
	if !c.output.isTable() {
		list, err := h.agents.List(ctx, opts)
		if err != nil {
			return h.explain(err, "list agents")
		}
		return c.output.object(c.std.out, list)
	}
	table, err := h.table(ctx, "", opts)
	if err != nil {
		return h.explain(err, "list agents")
	}
	if len(table.Rows) == 0 {
		return c.none(ctx, h)
	}
	if err := c.output.printTable(c.std.out, table); err != nil || c.output.noHeaders {
		return err
	}
	return h.printUntaken(ctx, c.std.out)
}

// none says that there is no agent. A namespace that does not exist is an error; one of which
// we may not know is as good as one that does.
func (c *listCommand) none(ctx context.Context, h *hub) error {
	if h.namespace == metav1.NamespaceAll {
		_, err := fmt.Fprintln(c.std.err, "No agents in any namespace.")
		return err
	}
	err := h.rest.Get().AbsPath("/api/v1/namespaces", h.namespace).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("list agents: namespace %s does not exist on the hub: name the one of Argo CD with --namespace, or list all with --all-namespaces", h.namespace)
	}
	_, err = fmt.Fprintf(c.std.err, "No agents in namespace %s.\n", h.namespace)
	return err
}
