package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/fleet"
)

type deleteCommand struct {
	std            cli.Streams
	conn           *cli.Connection
	output         *cli.Output
	orphan         bool
	cascade        bool
	force          bool
	yes            bool
	ignoreNotFound bool
	wait           bool
	timeout        time.Duration
}

func newDeleteCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &deleteCommand{std: std, conn: conn, output: cli.NewOutput("name")}
	cmd := &cobra.Command{
		Use:     "delete NAME... [--orphan | --cascade | --force]",
		Aliases: []string{"rm"},
		Short:   "Take agents off the hub",
		Long: "Take agents off the hub. Their cluster Secrets go, and what becomes of their spokes\n" +
			"follows spec.deletionPolicy, which a flag changes first:\n\n" +
			"  orphan   The streams end at once, and nothing on the spoke is touched. What is left\n" +
			"           there, and how to release it, is printed.\n" +
			"  cascade  The spoke deletes the agent's Applications with their workloads; the agent\n" +
			"           stays until it has confirmed that. For mode managed only.\n\n" +
			"A cascade shows what goes and asks, and needs --yes where there is no terminal.\n\n" +
			"A cascade whose spoke does not come back waits for ever. --force calls it off: the\n" +
			"agent goes without its spoke, where everything is left as it is.",
		Example: "  agentctl agent delete edge-1\n" +
			"  agentctl agent delete edge-1 --cascade --yes --timeout 10m\n" +
			"  agentctl agent delete edge-1 --force",
		Args:              cli.Names(false),
		ValidArgsFunction: conn.CompleteNames,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) },
	}
	c.output.AddFlag(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&c.orphan, "orphan", false, "leave everything on the spoke as it is")
	flags.BoolVar(&c.cascade, "cascade", false, "delete the Applications with their workloads on the spoke first")
	flags.BoolVar(&c.force, "force", false, "do not wait for the spoke, also when a cascade was asked for before")
	cmd.MarkFlagsMutuallyExclusive("orphan", "cascade", "force")
	flags.BoolVarP(&c.yes, "yes", "y", false, "do not ask before a cascade, which is needed where there is no terminal")
	flags.BoolVar(&c.ignoreNotFound, "ignore-not-found", false, "exit with 0 when the agent does not exist")
	flags.BoolVar(&c.wait, "wait", true, "wait until the agent is gone")
	flags.DurationVar(&c.timeout, "timeout", 0, "how long --wait waits; 0 means without limit")
	cli.Register(cmd, "timeout", cobra.NoFileCompletions)
	return cmd
}

func (c *deleteCommand) run(ctx context.Context, agents []string) error {
	h, err := c.conn.Hub()
	if err != nil {
		return err
	}
	// As with kubectl, one that cannot be deleted keeps no other from it, and all are
	// deleted before any is waited for.
	var problems []error
	var deleted []*v1alpha1.Agent
	for _, name := range agents {
		agent, err := c.delete(ctx, h, name)
		problems = append(problems, err)
		if agent != nil {
			deleted = append(deleted, agent)
		}
	}
	if c.wait {
		for _, agent := range deleted {
			problems = append(problems, waitGone(ctx, h, agent, c.timeout, c.std.Err))
		}
	}
	return errors.Join(problems...)
}

// delete returns the agent that is on its way out now; nil when none is.
func (c *deleteCommand) delete(ctx context.Context, h *cli.Hub, name string) (*v1alpha1.Agent, error) {
	doing := fmt.Sprintf("delete agent %q", name)
	obj, err := h.Agents.Get(ctx, name, metav1.GetOptions{})
	if c.ignoreNotFound && apierrors.IsNotFound(err) && !cli.IsCRDMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, h.Explain(err, doing)
	}
	agent, err := cli.ParseAgent(obj)
	if err != nil {
		return nil, err
	}
	if policy := c.policy(); policy != "" {
		agent.Spec.DeletionPolicy = policy
	}
	if c.cascade && !fleet.Cascades(agent) {
		return nil,
			fmt.Errorf("%s: --cascade is for mode managed: the Applications of an autonomous agent belong to its spoke", doing)
	}
	if ok, err := c.agreed(ctx, h, obj, agent); err != nil || !ok {
		return nil, prefixed(doing, err)
	}
	if err := c.carryOut(ctx, h, obj, agent.Spec.DeletionPolicy); err != nil {
		if c.ignoreNotFound && apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, h.Explain(err, doing)
	}
	if err := c.output.Done(c.std.Out, obj, "deleted"); err != nil {
		return agent, err
	}
	_, err = fmt.Fprint(c.std.Err, c.consequences(agent))
	return agent, err
}

// agreed returns whether a person agrees to deleting agent, which is obj with the policy that
// a flag gave it. No one is asked when no workloads go that do not go already.
func (c *deleteCommand) agreed(ctx context.Context, h *cli.Hub, obj *unstructured.Unstructured,
	agent *v1alpha1.Agent) (bool, error) {
	before, err := cli.ParseAgent(obj)
	if err != nil {
		return false, err
	}
	if !fleet.Cascades(agent) || agent.DeletionTimestamp != nil && fleet.Cascades(before) {
		return true, nil
	}
	if !c.yes {
		if _, err := fmt.Fprint(c.std.Err, describeCascade(ctx, h, agent)); err != nil {
			return false, err
		}
	}
	ok, err := cli.Consent(c.std, c.yes,
		fmt.Sprintf("Delete agent %q, and on its spoke all its Applications with their workloads?", agent.Name))
	if err == nil && !ok {
		_, err = fmt.Fprintf(c.std.Err, "Cancelled, agent %s stays.\n", agent.Name)
	}
	return ok, err
}

// describeCascade says what goes with a managed agent, as far as the hub shows it.
func describeCascade(ctx context.Context, h *cli.Hub, agent *v1alpha1.Agent) string {
	out := fmt.Sprintf("With agent %s go %s that it has, with their workloads on the spoke.\n", agent.Name,
		cli.Applications(int(agent.Status.Counts.Applications)))
	var its []*unstructured.Unstructured
	err := cli.EachOf(ctx, h.Applications, func(app *unstructured.Unstructured) error {
		if destinedFor(app, agent.Name) {
			its = append(its, app)
		}
		return nil
	})
	switch {
	case err != nil:
		out += "Which those are cannot be read: " + cli.OneLine(err) + "\n"
	case len(its) > 0:
		out += "With its cluster as destination the hub has " + namesOf(its) + ".\n"
	}
	return out
}

// prefixed returns err with what it was met at; nil for none.
func prefixed(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// policy is what a flag makes of the Agent's own policy; empty for no flag.
func (c *deleteCommand) policy() v1alpha1.DeletionPolicy {
	switch {
	case c.cascade:
		return v1alpha1.DeletionCascade
	case c.orphan, c.force:
		return v1alpha1.DeletionOrphan
	}
	return ""
}

// carryOut gives obj the policy, and then deletes it unless someone has. The UID keeps
// a new agent of the same name from being deleted for the one that was meant.
func (c *deleteCommand) carryOut(ctx context.Context, h *cli.Hub, obj *unstructured.Unstructured,
	policy v1alpha1.DeletionPolicy) error {
	uid, leaving := obj.GetUID(), obj.GetDeletionTimestamp() != nil
	if have, _, _ := unstructured.NestedString(obj.Object, "spec", "deletionPolicy"); have != string(policy) {
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": uid},
			"spec":     map[string]any{"deletionPolicy": policy},
		})
		if err != nil {
			return err
		}
		_, err = h.Agents.Patch(ctx, obj.GetName(), types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: "agentctl"})
		if err != nil && !(leaving && apierrors.IsNotFound(err)) {
			return err
		}
	}
	if leaving {
		return nil // with another policy it may be gone by now, which is no error
	}
	return h.Agents.Delete(ctx, obj.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
}

// consequences says what deleting agent means for its spoke, and what is left for
// a person to do there.
func (c *deleteCommand) consequences(agent *v1alpha1.Agent) string {
	name := agent.Name
	switch {
	case fleet.Cascades(agent):
		return fmt.Sprintf("The spoke %s deletes its Applications with their workloads; the agent stays until all are gone.\n"+
			"If the spoke does not come back: agentctl agent delete %s --force\n", name, name)
	case agent.Spec.Mode == v1alpha1.ModeAutonomous:
		return fmt.Sprintf("Nothing on the spoke %s was touched: its Applications are its own and go on as before.\n"+
			"Stop the agent there, since the hub refuses it from now on.\n", name)
	}
	forced := ""
	if c.force {
		forced = "Forced: the hub did not wait for the spoke. What a cascade did not delete there before goes on running.\n"
	}
	return forced +
		fmt.Sprintf("Nothing more on the spoke %s is touched: its Applications and workloads stay as they are.\n"+
			"Stop the agent there, since the hub refuses it from now on. Then, on the spoke, make all of them its own:\n"+
			"  kubectl -n argocd annotate applications.argoproj.io,appprojects.argoproj.io,secrets,configmaps --all %s- %s- %s-\n"+
			"or release one by one, whose workloads stay:\n"+
			"  argocd app delete NAME --cascade=false --core\n",
			name, sourceAnnotation, sourceUIDAnnotation, principalUIDAnnotation)
}

// Annotations by which a spoke's agent knows the copies that the hub put there.
const (
	sourceAnnotation       = "argomesh.io/source"
	sourceUIDAnnotation    = "argocd.argoproj.io/source-uid"
	principalUIDAnnotation = "argocd.argoproj.io/principal-uid"
)
