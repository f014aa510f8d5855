package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/agents"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/internal/buildinfo"
	hubstate "github.com/argomesh/argomesh/fleet/hub"
)

type upgradeCommand struct {
	std      cli.Streams
	conn     *cli.Connection
	spoke    spokeCommand // with the options that are asked for
	all      bool
	contexts string
	version  string // of this agentctl
}

// nameInContext is what the name of an agent takes the place of in --contexts.
const nameInContext = "NAME"

func newSpokeUpgradeCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &upgradeCommand{std: std, conn: conn, version: buildinfo.Read().Version}
	c.spoke.std, c.spoke.quiet = std, true
	cmd := &cobra.Command{
		Use:   "upgrade (NAME... | --all) --hub-context CONTEXT",
		Short: "Upgrade the agents of many spokes, one at a time",
		Long: "Upgrade the agents of spokes to the release of this agentctl, one after the other, as \"agentctl spoke\n" +
			"install\" does each: values are kept, and where nothing differs nothing is written. The hub comes first: it has\n" +
			"to run this release already. The first agent that does not come back to the hub with this release ends\n" +
			"the command, so that the others stay as they are; run again it goes on where it stopped.\n\n" +
			"The contexts of the kubeconfig are called as the agents, unless --contexts says otherwise. A suspended agent\n" +
			"is left out, since it cannot come back.",
		Example: "  agentctl hub install --context hub\n  agentctl spoke upgrade --all --hub-context hub",
		Args: func(cmd *cobra.Command, args []string) error {
			if c.all {
				return cli.None(cmd, args)
			}
			return cli.Names(false)(cmd, args)
		},
		ValidArgsFunction: conn.CompleteNames,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args) },
	}
	c.spoke.options.addShared(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&c.all, "all", false, "all agents that are registered with the hub")
	flags.StringVar(&c.contexts, "contexts", nameInContext, "context of the kubeconfig for each spoke, with NAME for that of the agent")
	flags.StringVar(&c.spoke.hubContext, "hub-context", "", "context of the kubeconfig for the hub")
	flags.StringVar(&c.spoke.hub, "hub-namespace", cli.DefaultNamespace, "namespace of the hub's Argo CD, where the Agents live")
	c.spoke.agent.AddFlags(&cobra.Command{}) // what an Agent is does not change here
	cli.Register(cmd, "hub-context", conn.CompleteContexts)
	cli.Register(cmd, "hub-namespace", cobra.NoFileCompletions)
	cli.Register(cmd, "contexts", cobra.NoFileCompletions)
	return cmd
}

func (c *upgradeCommand) run(ctx context.Context, names []string) error {
	if c.spoke.hubContext == "" {
		return errors.New("--hub-context is missing: which agents there are, and whether they come back, the hub knows")
	}
	if !strings.Contains(c.contexts, nameInContext) {
		return fmt.Errorf("--contexts %q does not have %s in it: all spokes would be one", c.contexts, nameInContext)
	}
	hub, err := c.conn.In(c.spoke.hubContext).HubIn(c.spoke.hub)
	if err != nil {
		return err
	}
	if err := c.hubFirst(ctx, hub); err != nil {
		return err
	}
	todo, err := c.todo(ctx, hub, names)
	if err != nil {
		return err
	}
	for i, name := range todo {
		if _, err := fmt.Fprintf(c.std.Out, "%d of %d: agent %s\n", i+1, len(todo), name); err != nil {
			return err
		}
		if err := c.one(ctx, hub, name); err != nil {
			left := "it was the last"
			if rest := todo[i+1:]; len(rest) > 0 {
				left = fmt.Sprintf("%d are left as they were: %s", len(rest), strings.Join(rest, ", "))
			}
			return fmt.Errorf("agent %s: %w; %d of %d are upgraded, and %s", name, err, i, len(todo), left)
		}
	}
	_, err = fmt.Fprintf(c.std.Out, "%d agents run %s\n", len(todo), c.version)
	return err
}

// hubFirst refuses a hub that runs another release.
func (c *upgradeCommand) hubFirst(ctx context.Context, hub *cli.Hub) error {
	cm, err := hub.ConfigMaps.Get(ctx, hubstate.ConfigMap, metav1.GetOptions{})
	if err != nil {
		return hub.Explain(err, "learn which release the hub runs")
	}
	runs, _, _ := unstructured.NestedString(cm.Object, "data", hubstate.VersionKey)
	if runs != c.version {
		return fmt.Errorf("the hub runs %s, and this agentctl is %s: the hub comes first, by \"agentctl hub install --context %s\"",
			cmp.Or(runs, "an unknown release"), c.version, c.spoke.hubContext)
	}
	return nil
}

// todo are the names of the agents to upgrade, in order: those that have a context, and are not
// suspended.
func (c *upgradeCommand) todo(ctx context.Context, hub *cli.Hub, names []string) (todo []string, err error) {
	known := map[string]v1alpha1.Agent{}
	err = cli.EachOf(ctx, hub.Agents, func(obj *unstructured.Unstructured) error {
		agent, err := cli.ParseAgent(obj)
		if err == nil {
			known[agent.Name] = *agent
		}
		return err
	})
	if err != nil {
		return nil, hub.Explain(err, "list agents")
	}
	if c.all {
		names = slices.Sorted(maps.Keys(known))
	}
	contexts, err := c.conn.Contexts()
	if err != nil {
		return nil, err
	}
	var strange, lost []string
	for _, name := range names {
		agent, is := known[name]
		switch {
		case !is:
			strange = append(strange, name)
		case agent.Spec.Suspended:
			if _, err := fmt.Fprintf(c.std.Out, "agent %s is suspended, and left out\n", name); err != nil {
				return nil, err
			}
		case !slices.Contains(contexts, c.contextOf(name)):
			lost = append(lost, c.contextOf(name))
		default:
			todo = append(todo, name)
		}
	}
	switch {
	case len(strange) > 0:
		return nil, fmt.Errorf("not registered with the hub: %s; \"agentctl agent list\" shows those that are",
			strings.Join(strange, ", "))
	case len(lost) > 0:
		return nil, fmt.Errorf("the kubeconfig has no context %s: --contexts says how they are called, such as admin@%s",
			strings.Join(lost, ", "), nameInContext)
	}
	return todo, nil
}

func (c *upgradeCommand) contextOf(name string) string {
	return strings.ReplaceAll(c.contexts, nameInContext, name)
}

// one upgrades one agent, and sees it back with this release.
func (c *upgradeCommand) one(ctx context.Context, hub *cli.Hub, name string) error {
	spoke := c.spoke
	spoke.conn = c.conn.In(c.contextOf(name))
	spoke.conn.Namespace = c.conn.Namespace
	if err := spoke.run(ctx, name); err != nil {
		return err
	}
	// The agent that was connected before may still be so for a moment.
	return agents.WaitConnected(ctx, hub, name, c.version, spoke.options.timeout)
}
