package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/api/v1alpha1"
)

type deleteCommand struct {
	std            streams
	conn           *connection
	output         *output
	ignoreNotFound bool
	wait           bool
	timeout        time.Duration
}

func newDeleteCommand(std streams, conn *connection) *cobra.Command {
	c := &deleteCommand{std: std, conn: conn, output: newOutput("name")}
	cmd := &cobra.Command{
		Use:     "delete NAME...",
		Aliases: []string{"rm"},
		Short:   "Take agents off the hub",
		Long: "Take agents off the hub: their streams end and their cluster Secrets go. Nothing on\n" +
			"the spoke is touched; what is left there, and how to release it, is printed.",
		Example:           "  agentctl agent delete edge-1",
		Args:              names(false),
		ValidArgsFunction: conn.completeNames,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) },
	}
	c.output.addFlag(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&c.ignoreNotFound, "ignore-not-found", false, "an agent that does not exist is no error")
	flags.BoolVar(&c.wait, "wait", true, "wait until the agent is gone")
	flags.DurationVar(&c.timeout, "timeout", 0, "how long --wait waits; 0 means without limit")
	register(cmd, "timeout", cobra.NoFileCompletions)
	return cmd
}

func (c *deleteCommand) run(ctx context.Context, agents []string) error {
	h, err := c.conn.hub()
	if err != nil {
		return err
	}
	for _, name := range agents {
		if err := c.delete(ctx, h, name); err != nil {
			return err
		}
	}
	return nil
}

func (c *deleteCommand) delete(ctx context.Context, h *hub, name string) error {
	doing := fmt.Sprintf("delete agent %q", name)
	obj, err := h.agents.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		// The UID keeps a new agent of the same name from being deleted for the one
		// that was meant.
		uid := obj.GetUID()
		err = h.agents.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	}
	switch {
	case err == nil:
	case c.ignoreNotFound && apierrors.IsNotFound(err) && !isCRDMissing(err):
		return nil
	default:
		return h.explain(err, doing)
	}
	agent, err := parseAgent(obj)
	if err != nil {
		return err
	}
	if err := c.output.done(c.std.out, obj, "deleted"); err != nil {
		return err
	}
	if _, err := fmt.Fprint(c.std.err, leftOnSpoke(agent)); err != nil {
		return err
	}
	if !c.wait {
		return nil
	}
	return h.waitGone(ctx, name, agent.UID, c.timeout)
}

// leftOnSpoke says what deleting agent leaves on its spoke, and how a person
// removes that.
func leftOnSpoke(agent *v1alpha1.Agent) string {
	if agent.Spec.Mode == v1alpha1.ModeAutonomous {
		return fmt.Sprintf("Nothing on the spoke %s was touched: its Applications are its own and go on as before.\n"+
			"Stop the agent there, since the hub refuses it from now on.\n", agent.Name)
	}
	return fmt.Sprintf("Nothing on the spoke %s was touched: its Applications and workloads stay as they are.\n"+
		"To release the Applications there, stop the agent first, then for each of them, on the spoke:\n"+
		"  argocd app delete NAME --cascade=false --core\n"+
		"Their workloads stay.\n", agent.Name)
}
