package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// completionTimeout bounds how long the shell waits for names after a tab.
const completionTimeout = 3 * time.Second

// CompleteNames offers the names of the hub's Agents to the shell, but those
// already on the command line.
func (c *Connection) CompleteNames(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	h, err := c.Hub()
	if err != nil {
		cobra.CompErrorln(err.Error())
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	list, err := h.Agents.List(ctx, metav1.ListOptions{})
	if err != nil {
		cobra.CompErrorln(h.Explain(err, "list agents").Error())
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, item := range list.Items {
		if !slices.Contains(args, item.GetName()) {
			out = append(out, item.GetName())
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// CompleteName is CompleteNames for a command that takes one.
func (c *Connection) CompleteName(cmd *cobra.Command, args []string,
	prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.CompleteNames(cmd, args, prefix)
}

// CompleteContexts completes the contexts of the kubeconfig.
func (c *Connection) CompleteContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	names, err := c.Contexts()
	if err != nil {
		cobra.CompErrorln(err.Error())
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// Register sets the completion of a flag that was just added to cmd.
func Register(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(fmt.Sprintf("completion of --%s: %v", flag, err)) // a flag of ours that does not exist
	}
}
