package agents

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/backends/record"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

type releaseCommand struct {
	std  cli.Streams
	conn *cli.Connection
	yes  bool
}

func newReleaseCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &releaseCommand{std: std, conn: conn}
	cmd := &cobra.Command{
		Use:   "release-mirrors NAME [APPLICATION]",
		Short: "Give the hub what it shows of an agent",
		Long: "Make mirrors the hub's own, after showing them: all Applications and AppProjects that the\n" +
			"hub shows of the agent, or one Application, by its name or its namespace and name. The hub\n" +
			"neither changes nor deletes them from then on, whether the Agent is still there or not, and\n" +
			"people may. The spoke and what runs there stay as they are. Where the hub maps by namespace,\n" +
			"a child application becomes one that the hub sends to its agent (by destination docs/mapping.md\n" +
			"says what it becomes): the spoke takes it if policy.adopt of the agent names it,\n" +
			"and then it is deleted, with its workloads if that is asked for, as any other. kubectl does\n" +
			"the same with the annotation " + record.ReleasedKey + ", and undoes it by taking that away.",
		Example: "  agentctl agent release-mirrors edge-2\n" +
			"  agentctl agent release-mirrors edge-2 edge-2/shop --yes",
		Args:              nameAndApplication,
		ValidArgsFunction: conn.CompleteName,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args[0], strings.Join(args[1:], ""))
		},
	}
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	return cmd
}

func (c *releaseCommand) run(ctx context.Context, agent, application string) error {
	doing := fmt.Sprintf("release mirrors of agent %q", agent)
	h, err := c.conn.Hub()
	if err != nil {
		return err
	}
	mirrors, err := mirrorsOf(ctx, h, agent, application)
	if err != nil {
		return cli.ExplainAPI(err, doing, "hub", h.Host)
	}
	switch {
	case len(mirrors) == 0:
		_, err := fmt.Fprintf(c.std.Err, "The hub shows no such Application or AppProject of agent %s.\n", agent)
		return err
	case application != "" && len(mirrors) > 1:
		return fmt.Errorf("%s: Applications of that name are in namespaces %s and %s: say NAMESPACE/%s", doing,
			mirrors[0].GetNamespace(), mirrors[1].GetNamespace(), application)
	}
	if !c.yes {
		for _, o := range mirrors {
			if _, err := fmt.Fprintf(c.std.Err, "  %s %s/%s\n", o.GetKind(), o.GetNamespace(), o.GetName()); err != nil {
				return err
			}
		}
	}
	ok, err := cli.Consent(c.std, c.yes,
		fmt.Sprintf("Give %d mirrors of agent %q to the hub, which then shows the agent's no more?", len(mirrors), agent))
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if !ok {
		_, err = fmt.Fprintln(c.std.Err, "Cancelled, they stay as they are.")
		return err
	}
	if err := h.AnnotateApplications(ctx, mirrors, record.ReleasedKey); err != nil {
		return cli.ExplainAPI(err, doing, "hub", h.Host)
	}
	_, err = fmt.Fprintf(c.std.Out, "%d released\n", len(mirrors))
	return err
}

// mirrorsOf returns what the hub shows of an agent, registered or not: its Applications and
// AppProjects, or the Applications of that name, or of that namespace and name.
func mirrorsOf(ctx context.Context, h *cli.Hub, agent, application string) ([]*unstructured.Unstructured, error) {
	var mirrors []*unstructured.Unstructured
	add := func(obj *unstructured.Unstructured) error {
		named := application == "" || application == obj.GetName() || application == obj.GetNamespace()+"/"+obj.GetName()
		if of, shown := record.ShownBy(obj.Object); named && shown && of.String() == agent {
			mirrors = append(mirrors, obj)
		}
		return nil
	}
	if err := cli.EachOf(ctx, h.Applications, add); err != nil || application != "" {
		return mirrors, err
	}
	err := cli.EachOf(ctx, h.Projects.Namespace(h.Namespace), add)
	return mirrors, err
}
