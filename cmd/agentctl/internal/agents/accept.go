package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

type acceptCommand struct {
	std     cli.Streams
	conn    *cli.Connection
	output  *cli.Output
	id      string
	yes     bool
	wait    bool
	timeout time.Duration
}

func newAcceptCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &acceptCommand{std: std, conn: conn, output: cli.NewOutput("name")}
	cmd := &cobra.Command{
		Use:   "accept-deletions NAME",
		Short: "Let deletions happen that are held back",
		Long: "Let deletions happen that are held back, after showing them. Deletions are held when\n" +
			"hub or spoke is not the one that the other knew (restored from a backup, rebuilt), or\n" +
			"when more than 10 objects and more than 20 % would go at once, or when Applications would\n" +
			"take their workloads along: too many at once, or with their namespace; for those there is\n" +
			"\"agentctl agent keep-workloads\" as well. Only what is shown is accepted: when other\n" +
			"deletions are held meanwhile, nothing happens.",
		Example: "  agentctl agent accept-deletions edge-1\n" +
			"  agentctl agent accept-deletions edge-1 --id 0f8fad5b-d9cb-469f-a165-70867728950e --yes",
		Args:              cli.Names(true),
		ValidArgsFunction: conn.CompleteName,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	c.output.AddFlag(cmd)
	flags := cmd.Flags()
	flags.StringVar(&c.id, "id", "", "accept only the deletions held under this ID")
	flags.BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	flags.BoolVar(&c.wait, "wait", true, "wait until the principal has let them happen")
	flags.DurationVar(&c.timeout, "timeout", time.Minute, "how long --wait waits; 0 means without limit")
	for _, name := range []string{"id", "timeout"} {
		cli.Register(cmd, name, cobra.NoFileCompletions)
	}
	return cmd
}

func (c *acceptCommand) run(ctx context.Context, name string) error {
	h, err := c.conn.Hub()
	if err != nil {
		return err
	}
	doing := fmt.Sprintf("accept deletions of agent %q", name)
	agent, obj, err := h.Agent(ctx, name, doing)
	if err != nil {
		return err
	}
	held := agent.Status.DeletionsHeld
	if held == nil {
		_, err := fmt.Fprintf(c.std.Err, "No deletions are held for agent %s.\n", name)
		return err
	}
	if c.id != "" && c.id != held.ID {
		return fmt.Errorf("%s: held is %s, not %s: look at it with \"agentctl agent get %s\"", doing, held.ID, c.id, name)
	}
	if _, err := fmt.Fprint(c.std.Err, describeHeld(agent)); err != nil {
		return err
	}
	ok, err := cli.Consent(c.std, c.yes, fmt.Sprintf("Let %s happen?", deletions(held.Total)))
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if !ok {
		_, err := fmt.Fprintln(c.std.Err, "Cancelled, they stay held.")
		return err
	}
	if err := acceptID(ctx, h, obj, held.ID); err != nil {
		return h.Explain(err, doing)
	}
	if c.wait {
		if err := waitAccepted(ctx, h, agent, held.ID, c.timeout); err != nil {
			return err
		}
	}
	return c.output.Done(c.std.Out, obj, "deletions accepted")
}

// acceptID annotates the Agent obj with the ID of what is accepted, unless something
// else is held by now. The principal writing the status meanwhile is no harm.
func acceptID(ctx context.Context, h *cli.Hub, obj *unstructured.Unstructured, id string) error {
	uid := obj.GetUID()
	for {
		agent, err := cli.ParseAgent(obj)
		switch held := agent.Status.DeletionsHeld; {
		case err != nil:
			return err
		case agent.UID != uid:
			return errGone
		case held == nil:
			return errors.New("they are not held any more")
		case held.ID != id:
			return otherHeld(held)
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid":             uid,
			"resourceVersion": obj.GetResourceVersion(),
			"annotations":     map[string]any{v1alpha1.AcceptDeletionsAnnotation: id},
		}})
		if err != nil {
			return err
		}
		_, err = h.Agents.Patch(ctx, obj.GetName(), types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: "agentctl"})
		if !apierrors.IsConflict(err) {
			return err
		}
		if obj, err = h.Agents.Get(ctx, obj.GetName(), metav1.GetOptions{}); err != nil {
			return err
		}
	}
}

// otherHeld is the error when other deletions are held than those accepted.
func otherHeld(held *v1alpha1.DeletionsHeld) error {
	is := "are"
	if held.Total == 1 {
		is = "is"
	}
	return fmt.Errorf("what is held changed meanwhile: now it is %s, under which %s %s held; look at them and accept again", held.ID, deletions(held.Total), is)
}

// waitAccepted waits until what was held under id is no longer held.
func waitAccepted(ctx context.Context, h *cli.Hub, agent *v1alpha1.Agent, id string, timeout time.Duration) error {
	away := !agent.Status.Connected
	err := watchAgent(ctx, h, agent.Name, timeout, func(seen *unstructured.Unstructured) (bool, error) {
		if seen == nil || seen.GetUID() != agent.UID {
			return false, errGone
		}
		now, err := cli.ParseAgent(seen)
		if err != nil {
			return false, err
		}
		away = !now.Status.Connected
		held := now.Status.DeletionsHeld
		if held != nil && held.ID != id {
			return false, otherHeld(held)
		}
		return held == nil, nil
	})
	doing := fmt.Sprintf("deletions of agent %q are accepted, but still held", agent.Name)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && away:
		return fmt.Errorf("%s after %s: the agent is not connected; they happen when it is back", doing, timeout)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s after %s: check that the principal runs in namespace %s of the hub", doing, timeout,
			h.Namespace)
	case err != nil:
		return h.Explain(err, fmt.Sprintf("accept deletions of agent %q", agent.Name))
	}
	return nil
}

// describeHeld shows what is held for an agent, some lines.
func describeHeld(agent *v1alpha1.Agent) string {
	held := agent.Status.DeletionsHeld
	var b strings.Builder
	fmt.Fprintf(&b, "Agent %s holds back %s since %s (%s)", agent.Name, deletions(held.Total), held.Since.UTC().
		Format(time.RFC3339), held.Reason)
	if held.Message != "" {
		fmt.Fprintf(&b, ": %s", held.Message)
	}
	fmt.Fprintf(&b, "\nID %s\n", held.ID)
	for _, o := range held.Objects {
		where := o.Name
		if o.Namespace != "" {
			where = o.Namespace + "/" + o.Name
		}
		along := ""
		if o.WithWorkloads {
			along = ", with its workloads"
		}
		fmt.Fprintf(&b, "  %s %s%s\n", o.Kind, where, along)
	}
	if more := held.Total - int64(len(held.Objects)); more > 0 {
		fmt.Fprintf(&b, "  and %d more\n", more)
	}
	return b.String()
}

func deletions(n int64) string {
	if n == 1 {
		return "1 deletion"
	}
	return fmt.Sprintf("%d deletions", n)
}
