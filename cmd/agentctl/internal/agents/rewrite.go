package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends"
	"github.com/argomesh/argomesh/backends/mapping"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/stream"
)

type rewriteCommand struct {
	std          cli.Streams
	conn         *cli.Connection
	dryRun       bool
	noController bool
	yes          bool
	noHeaders    bool
}

func newRewriteCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &rewriteCommand{std: std, conn: conn}
	cmd := &cobra.Command{
		Use:   "rewrite-destinations NAME",
		Short: "Mend the destinations of Applications that were written for argocd-agent",
		Long: "Make the agent's cluster, by its name, the destination of those Applications of the hub that\n" +
			"were written for argocd-agent, after showing them: whose destination.server is\n" +
			"https://...?agentName=NAME or, in a namespace of the agent's, the hub's own cluster. Those are\n" +
			"not sent to the agent as they are, and their condition ArgomeshError says so.\n\n" +
			"Named and not written are those that an ApplicationSet makes, which would undo it: its template\n" +
			"is the place; those that are being deleted; those of which the principal does not say that they\n" +
			"are the agent's; and, without --hub-has-no-controller, those with the hub's own cluster, since\n" +
			"an application controller of the hub may have deployed them there. What comes from git has to\n" +
			"be changed in git as well. When something is left it exits with 1, but for --dry-run.",
		Example: "  agentctl agent rewrite-destinations edge-1 --dry-run\n" +
			"  agentctl agent rewrite-destinations edge-1 --hub-has-no-controller --yes",
		Args:              cli.Names(true),
		ValidArgsFunction: conn.CompleteName,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&c.dryRun, "dry-run", false, "only print what would be written")
	flags.BoolVar(&c.noController, "hub-has-no-controller", false,
		"write also what has the hub's own cluster: nothing on the hub deploys there")
	flags.BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	flags.BoolVar(&c.noHeaders, "no-headers", false, "print a table without its first line")
	return cmd
}

// applyRewrite is an Application that was written for argocd-agent, and what becomes of it.
type rewrite struct {
	obj         *unstructured.Unstructured
	destination string
	// left is why it is not written; empty when it is.
	left   string
	failed error
}

func (c *rewriteCommand) run(ctx context.Context, name string) error {
	doing := fmt.Sprintf("rewrite destinations of agent %q", name)
	agentName, err := identity.ParseAgentName(name)
	if err != nil {
		return fmt.Errorf("the name of the agent: %w", err)
	}
	h, err := c.conn.Hub()
	if err != nil {
		return err
	}
	agent, _, err := h.Agent(ctx, name, doing)
	if err != nil {
		return err
	}
	if agent.Spec.Mode != v1alpha1.ModeManaged {
		return fmt.Errorf("%s: it is for mode managed: the Applications of an autonomous agent are written on its spoke",
			doing)
	}
	rules := rewriteRules{agent: agentName, noController: c.noController, namespaces: fleet.NamespacesOf(agent)}
	found, err := rules.find(ctx, h)
	if err != nil {
		return cli.ExplainAPI(err, doing, "hub", h.Host)
	}
	if len(found) == 0 {
		_, err := fmt.Fprintf(c.std.Err, "No Application names agent %s as argocd-agent does.\n", name)
		return err
	}
	if c.dryRun {
		return c.print(c.std.Out, found, "would be rewritten")
	}
	if ok, err := c.agreed(found, name); err != nil || !ok {
		return err
	}
	for _, r := range found {
		if r.left == "" {
			r.failed = applyRewrite(ctx, h, r, rules)
		}
	}
	if err := c.print(c.std.Out, found, "rewritten"); err != nil {
		return err
	}
	return unfinished(h, found, doing)
}

// agreed shows what is about to be written, and asks, unless no one wants to be asked or
// there is nothing to write.
func (c *rewriteCommand) agreed(found []*rewrite, agent string) (bool, error) {
	n := len(found)
	for _, r := range found {
		if r.left != "" {
			n--
		}
	}
	if c.yes || n == 0 {
		return true, nil
	}
	if err := c.print(c.std.Err, found, "to be rewritten"); err != nil {
		return false, err
	}
	ok, err := cli.Consent(c.std, c.yes,
		fmt.Sprintf("Make the cluster of agent %q the destination of %s?", agent, cli.Applications(n)))
	if err != nil {
		return false, fmt.Errorf("rewrite destinations of agent %q: %w", agent, err)
	}
	if !ok {
		_, err = fmt.Fprintln(c.std.Err, "Cancelled, they stay as they are.")
	}
	return ok, err
}

// print prints a table; done is what became of those that are written.
func (c *rewriteCommand) print(w io.Writer, found []*rewrite, done string) error {
	tabs := cli.NewTable(w, false)
	if !c.noHeaders {
		tabs.Row([]string{"NAMESPACE", "NAME", "DESTINATION", "RESULT"})
	}
	for _, r := range found {
		result := done
		switch {
		case r.failed != nil:
			result = "failed"
		case r.left != "":
			result = "not written: " + r.left
		}
		tabs.Row([]string{r.obj.GetNamespace(), r.obj.GetName(), r.destination, result})
	}
	return tabs.Flush()
}

// unfinished is the error that says what was not written; nil when all was.
func unfinished(h *cli.Hub, found []*rewrite, doing string) error {
	var problems []error
	left := 0
	for _, r := range found {
		switch {
		case r.failed != nil:
			problems = append(problems,
				cli.ExplainAPI(r.failed, fmt.Sprintf("%s: Application %s/%s", doing, r.obj.GetNamespace(), r.obj.GetName()), "hub",
					h.Host))
		case r.left != "":
			left++
		}
	}
	if left > 0 {
		problems = append(problems,
			fmt.Errorf("%s: %s of %d not written, for the reasons in the table", doing, cli.Applications(left), len(found)))
	}
	return errors.Join(problems...)
}

// rewriteRules say what is to be done with an Application of the hub.
type rewriteRules struct {
	agent        identity.AgentName
	namespaces   []v1alpha1.MappedNamespace // of the Agent
	noController bool
}

// find returns the Applications of the hub that were written for argocd-agent.
func (r rewriteRules) find(ctx context.Context, h *cli.Hub) ([]*rewrite, error) {
	var found []*rewrite
	err := cli.EachOf(ctx, h.Applications, func(obj *unstructured.Unstructured) error {
		one, err := r.plan(obj)
		if one != nil {
			found = append(found, one)
		}
		return err
	})
	return found, err
}

// plan returns nil for an Application that was not written for argocd-agent, or is
// not this agent's.
func (r rewriteRules) plan(obj *unstructured.Unstructured) (*rewrite, error) {
	raw, err := obj.MarshalJSON()
	if err != nil {
		return nil, err
	}
	aliased, is := mapping.AliasedOf(backends.Object{
		Key: stream.ResourceKey{Kind: stream.Application, Namespace: obj.GetNamespace(), Name: obj.GetName()}, Raw: raw,
	}, r.agent)
	// The hub's own cluster has Applications that are no one's.
	if !is || aliased.Alias == mapping.AliasHub && !aliased.Reported &&
		!slices.ContainsFunc(r.namespaces, func(m v1alpha1.MappedNamespace) bool { return m.Hub == obj.GetNamespace() }) {
		return nil, nil
	}
	out := &rewrite{obj: obj, destination: aliased.Destination}
	switch {
	case aliased.Set != "":
		out.left = fmt.Sprintf("ApplicationSet %s makes it: change its template", aliased.Set)
	case obj.GetDeletionTimestamp() != nil:
		out.left = "it is being deleted"
	case !aliased.Reported:
		out.left = "the principal does not say that it is the agent's (condition ArgomeshError)"
	case aliased.Alias == mapping.AliasHub && !r.noController:
		out.left = "it is the hub's own cluster: say --hub-has-no-controller if nothing on the hub deploys there"
	}
	return out, nil
}

// applyRewrite writes the destination of an Application as it was checked. When someone
// changed the Application meanwhile it is checked again.
func applyRewrite(ctx context.Context, h *cli.Hub, r *rewrite, rules rewriteRules) error {
	here := h.Applications.Namespace(r.obj.GetNamespace())
	for {
		patch := mapping.DestinationPatch(rules.agent)
		patch["metadata"] = map[string]any{"uid": r.obj.GetUID(), "resourceVersion": r.obj.GetResourceVersion()}
		raw, err := json.Marshal(patch)
		if err != nil {
			return err
		}
		_, err = here.Patch(ctx, r.obj.GetName(), types.MergePatchType, raw, metav1.PatchOptions{FieldManager: "agentctl"})
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err
		}
		obj, err := here.Get(ctx, r.obj.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			r.left = "it was deleted meanwhile"
			return nil
		}
		if err != nil {
			return err
		}
		again, err := rules.plan(obj)
		switch {
		case err != nil:
			return err
		case again == nil || obj.GetUID() != r.obj.GetUID():
			r.left = "it was changed meanwhile"
			return nil
		}
		if *r = *again; r.left != "" {
			return nil
		}
	}
}
