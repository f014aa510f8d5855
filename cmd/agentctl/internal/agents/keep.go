package agents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/backends/ownership"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

type keepCommand struct {
	std     cli.Streams
	conn    *cli.Connection
	yes     bool
	wait    bool
	timeout time.Duration
}

func newKeepCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &keepCommand{std: std, conn: conn}
	cmd := &cobra.Command{
		Use:   "keep-workloads NAME [APPLICATION]",
		Short: "Let Applications go without their workloads that are being deleted with them",
		Long: "Let Applications of the hub, which are being deleted with their workloads, go without\n" +
			"them, after showing them: all of the agent's, or one, by its name or its namespace and name.\n" +
			"The spoke releases its copies, the workloads stay, and then the Applications are gone. That\n" +
			"is the other way out when such deletions are held. What the spoke has begun to delete it\n" +
			"does not call back. kubectl does the same with the annotation\n" +
			ownership.KeepWorkloadsKey + "=true of an Application.",
		Example: "  agentctl agent keep-workloads edge-1\n" +
			"  agentctl agent keep-workloads edge-1 web/shop --yes",
		Args:              nameAndApplication,
		ValidArgsFunction: conn.CompleteName,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args[0], strings.Join(args[1:], ""))
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	flags.BoolVar(&c.wait, "wait", true, "wait until they are gone from the hub")
	flags.DurationVar(&c.timeout, "timeout", time.Minute, "how long --wait waits; 0 means without limit")
	cli.Register(cmd, "timeout", cobra.NoFileCompletions)
	return cmd
}

// nameAndApplication allows the name of an agent, and perhaps that of an Application.
func nameAndApplication(cmd *cobra.Command, args []string) error {
	if len(args) > 2 {
		return fmt.Errorf("one Application at a time, not %d: %s", len(args)-1, cmd.UseLine())
	}
	return cli.Names(false)(cmd, args)
}

func (c *keepCommand) run(ctx context.Context, name, application string) error {
	doing := fmt.Sprintf("keep workloads of agent %q", name)
	h, err := c.conn.Hub()
	if err != nil {
		return err
	}
	agent, _, err := h.Agent(ctx, name, doing)
	if err != nil {
		return err
	}
	if agent.Spec.Mode != v1alpha1.ModeManaged {
		return fmt.Errorf("%s: it is for mode managed: what the hub shows of an autonomous agent goes without workloads in every case", doing)
	}
	going, err := deletingOf(ctx, h, agent.Name, application)
	if err != nil {
		return cli.ExplainAPI(err, doing, "hub", h.Host)
	}
	if len(going) == 0 {
		_, err := fmt.Fprintf(c.std.Err, "No such Application of agent %s is being deleted with its workloads.\n", name)
		return err
	}
	if application != "" && len(going) > 1 {
		return fmt.Errorf("%s: Applications of that name are in namespaces %s and %s: say NAMESPACE/%s", doing,
			going[0].GetNamespace(), going[1].GetNamespace(), application)
	}
	if ok, err := c.agreed(going, name); err != nil || !ok {
		return err
	}
	if err := h.AnnotateApplications(ctx, going, ownership.KeepWorkloadsKey); err != nil {
		return cli.ExplainAPI(err, doing, "hub", h.Host)
	}
	if c.wait {
		if err := waitDeleted(ctx, h, going, c.timeout); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("%s: they are not gone after %s; they go when the agent is connected and has released its copies",
					doing, c.timeout)
			}
			return cli.ExplainAPI(err, doing, "hub", h.Host)
		}
	}
	_, err = fmt.Fprintf(c.std.Out, "%s let go without workloads\n", cli.Applications(len(going)))
	return err
}

// agreed shows what is about to be let go, and asks, unless no one wants to be asked.
func (c *keepCommand) agreed(going []*unstructured.Unstructured, agent string) (bool, error) {
	if c.yes {
		return true, nil
	}
	for _, o := range going {
		if _, err := fmt.Fprintf(c.std.Err, "  %s/%s\n", o.GetNamespace(), o.GetName()); err != nil {
			return false, err
		}
	}
	ok, err := cli.Consent(c.std, c.yes,
		fmt.Sprintf("Let %s of agent %q go without workloads?", cli.Applications(len(going)), agent))
	if err != nil {
		return false, fmt.Errorf("keep workloads of agent %q: %w", agent, err)
	}
	if !ok {
		_, err = fmt.Fprintln(c.std.Err, "Cancelled, they stay as they are.")
	}
	return ok, err
}

// deletingOf returns the Applications of an agent that are being deleted with their workloads:
// all, or the one of that name, or of that namespace and name. That an Application is in
// no namespace of the agent's only the principal knows; there the annotation says nothing.
func deletingOf(ctx context.Context, h *cli.Hub, agent, application string) ([]*unstructured.Unstructured, error) {
	var going []*unstructured.Unstructured
	err := cli.EachOf(ctx, h.Applications, func(obj *unstructured.Unstructured) error {
		named := application == "" || application == obj.GetName() || application == obj.GetNamespace()+"/"+obj.GetName()
		if named && goesWithWorkloads(obj) && destinedFor(obj, agent) {
			going = append(going, obj)
		}
		return nil
	})
	return going, err
}

func goesWithWorkloads(app *unstructured.Unstructured) bool {
	return app.GetDeletionTimestamp() != nil && slices.ContainsFunc(app.GetFinalizers(), ownership.TakesWorkloads)
}

// destinedFor reports whether the destination of an Application is the agent: by its name, or
// by the server of its cluster Secret, which ends with it.
func destinedFor(app *unstructured.Unstructured, agent string) bool {
	name, _, _ := unstructured.NestedString(app.Object, "spec", "destination", "name")
	server, _, _ := unstructured.NestedString(app.Object, "spec", "destination", "server")
	return name == agent || name == "" && strings.HasSuffix(strings.TrimRight(server, "/"), "/agents/"+agent)
}

// waitDeleted waits until Applications are gone. A timeout of 0 means without limit.
func waitDeleted(ctx context.Context, h *cli.Hub, going []*unstructured.Unstructured, timeout time.Duration) error {
	ctx, cancel := watchtools.ContextWithOptionalTimeout(ctx, timeout)
	defer cancel()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return h.Applications.List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return h.Applications.Watch(ctx, opts)
		},
	}
	left := map[types.UID]bool{}
	for _, o := range going {
		left[o.GetUID()] = true
	}
	seen := func(store cache.Store) (bool, error) {
		there := map[types.UID]bool{}
		for _, item := range store.List() {
			if o, ok := item.(*unstructured.Unstructured); ok {
				there[o.GetUID()] = true
			}
		}
		for uid := range left {
			if !there[uid] {
				delete(left, uid)
			}
		}
		return len(left) == 0, nil
	}
	_, err := watchtools.UntilWithSync(ctx, lw, &unstructured.Unstructured{}, seen, func(event watch.Event) (bool, error) {
		if o, ok := event.Object.(*unstructured.Unstructured); ok && event.Type == watch.Deleted {
			delete(left, o.GetUID())
		}
		return len(left) == 0, nil
	})
	if ctxErr := ctx.Err(); err != nil && ctxErr != nil {
		return ctxErr // however the watch put it
	}
	return err
}
