package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/specs"
	"github.com/argomesh/argomesh/identity"
)

// setCommand changes the spec of Agents: set, suspend and resume.
type setCommand struct {
	std    cli.Streams
	conn   *cli.Connection
	output *cli.Output
	yes    bool
	verb   string // as in "set agent"
	done   string // as in "agent.argomesh.io/edge-1 set"
	apply  func(identity.AgentName, *v1alpha1.AgentSpec) error
}

func (c *setCommand) addFlags(cmd *cobra.Command) {
	c.output = cli.NewOutput(cli.ObjectFormats()...)
	c.output.AddFlag(cmd)
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask before a change that may delete workloads")
}

func newSetCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	s := &settings{}
	c := &setCommand{std: std, conn: conn, verb: "set", done: "set", apply: s.apply}
	cmd := &cobra.Command{
		Use:   "set NAME...",
		Short: "Change settings of agents",
		Long: "Change settings of agents: those that flags name, and no others. Doing it again changes\n" +
			"nothing. \"agentctl agent edit\" has all that an Agent may say.\n\n" +
			"A change that may delete workloads is asked about, and needs --yes where there is no terminal.",
		Example: "  agentctl agent set edge-1 --access read,exec\n" +
			"  agentctl agent set edge-1 edge-2 --label env=prod --label tier-",
		Args:              cli.Names(false),
		ValidArgsFunction: conn.CompleteNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(s.given()) == 0 {
				return fmt.Errorf("nothing is to be set: see %q", cmd.CommandPath()+" --help")
			}
			return c.run(cmd.Context(), args)
		},
	}
	c.addFlags(cmd)
	s.addFlags(cmd)
	return cmd
}

func newSuspendCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &setCommand{std: std, conn: conn, verb: "suspend", done: "suspended", apply: suspend(true)}
	cmd := &cobra.Command{
		Use:   "suspend NAME...",
		Short: "Refuse an agent's connections until it is resumed",
		Long: "Refuse an agent's connections until it is resumed: its streams end within a second, and calls\n" +
			"under way with them. Its spoke keeps running what it has. It sets spec.suspended.",
		Example:           "  agentctl agent suspend edge-1",
		Args:              cli.Names(false),
		ValidArgsFunction: conn.CompleteNames,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) },
	}
	c.output = cli.NewOutput(cli.ObjectFormats()...)
	c.output.AddFlag(cmd)
	return cmd
}

func newResumeCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &setCommand{std: std, conn: conn, verb: "resume", done: "resumed", apply: suspend(false)}
	cmd := &cobra.Command{
		Use:   "resume NAME...",
		Short: "Let a suspended agent connect again",
		Long: "Let a suspended agent connect again. It then does what the hub wants by now: Applications that\n" +
			"were deleted meanwhile go with their workloads, where they say so. Those are shown and asked\n" +
			"about first, and need --yes where there is no terminal.",
		Example:           "  agentctl agent resume edge-1",
		Args:              cli.Names(false),
		ValidArgsFunction: conn.CompleteNames,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) },
	}
	c.addFlags(cmd)
	return cmd
}

func suspend(on bool) func(identity.AgentName, *v1alpha1.AgentSpec) error {
	return func(_ identity.AgentName, spec *v1alpha1.AgentSpec) error {
		spec.Suspended = on
		return nil
	}
}

func (c *setCommand) run(ctx context.Context, agents []string) error {
	h, err := c.conn.Hub()
	if err != nil {
		return err
	}
	var problems []error // one that cannot be changed keeps no other from it
	for _, name := range agents {
		problems = append(problems, c.set(ctx, h, name))
	}
	return errors.Join(problems...)
}

func (c *setCommand) set(ctx context.Context, h *cli.Hub, text string) error {
	doing := fmt.Sprintf("%s agent %q", c.verb, text)
	name, err := identity.ParseAgentName(text)
	if err != nil {
		return fmt.Errorf("the name of the agent: %w", err)
	}
	before, obj, err := h.Agent(ctx, text, doing)
	if err != nil {
		return err
	}
	after := before.DeepCopy()
	if err := c.apply(name, &after.Spec); err != nil {
		return err
	}
	differences, err := specs.Diff(before.Spec, after.Spec)
	if err != nil {
		return err
	}
	if len(differences) == 0 {
		return c.output.Done(c.std.Out, obj, "unchanged")
	}
	ok, err := agreesTo(ctx, h, c.std, c.yes, agentChange{before: before, after: after})
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if !ok {
		_, err := fmt.Fprintf(c.std.Err, "Cancelled, agent %s stays as it is.\n", text)
		return err
	}
	stored, err := setSpec(ctx, h, obj, before, after)
	if err != nil {
		return h.Explain(err, doing)
	}
	return c.output.Done(c.std.Out, stored, c.done)
}

// setSpec gives the Agent obj the spec of after, unless it is no longer as in before, to which
// a person agreed. The principal writing the status meanwhile is no harm, but for what is held.
func setSpec(ctx context.Context, h *cli.Hub, obj *unstructured.Unstructured, before,
	after *v1alpha1.Agent) (*unstructured.Unstructured, error) {
	was, err := specOf(before)
	if err != nil {
		return nil, err
	}
	is, err := specOf(after)
	if err != nil {
		return nil, err
	}
	patch, err := mergePatch(was, is)
	if err != nil {
		return nil, err
	}
	for {
		body, err := preconditioned(patch, obj.GetResourceVersion())
		if err != nil {
			return nil, err
		}
		stored, err := h.Agents.Patch(ctx, obj.GetName(), types.MergePatchType, body,
			metav1.PatchOptions{FieldManager: "agentctl", FieldValidation: metav1.FieldValidationStrict})
		if !apierrors.IsConflict(err) {
			return stored, err
		}
		if obj, err = h.Agents.Get(ctx, obj.GetName(), metav1.GetOptions{}); err != nil {
			return nil, err
		}
		now, err := cli.ParseAgent(obj)
		if err != nil {
			return nil, err
		}
		if now.UID != before.UID || !reflect.DeepEqual(now.Spec, before.Spec) ||
			(now.DeletionTimestamp == nil) != (before.DeletionTimestamp == nil) ||
			holdID(now) != holdID(before) && holdID(now) != "" {
			return nil, errors.New("it was changed on the hub meanwhile: do it again")
		}
	}
}

func holdID(agent *v1alpha1.Agent) string {
	if agent.Status.DeletionsHeld == nil {
		return ""
	}
	return agent.Status.DeletionsHeld.ID
}

// specOf returns the spec of an Agent as it is patched.
func specOf(agent *v1alpha1.Agent) (map[string]any, error) {
	raw, err := json.Marshal(agent.Spec)
	if err != nil {
		return nil, err
	}
	var spec map[string]any
	err = json.Unmarshal(raw, &spec)
	return map[string]any{"spec": spec}, err
}
