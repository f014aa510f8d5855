package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/agents"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

const kept = "Values that were given once are kept: --values and --set are laid over them. A release that helm made\n" +
	"is taken over, and helm goes on working with it. Where nothing has to change nothing is written."

// NewHubCommand returns `agentctl hub install`.
func NewHubCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install the principal beside the hub's Argo CD, or upgrade it",
		Long: "Install the chart argomesh-principal, which is in agentctl, into the namespace of the hub's\n" +
			"Argo CD, or upgrade it, and wait until the principal is ready. Before anything is written it\n" +
			"looks for what must be there, and asks the Kubernetes API whether it would refuse an object.\n\n" +
			kept,
		Example: "  agentctl hub install --context hub --registry registry.example/argomesh --values principal.yaml",
		Args:    cli.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := &side{std: std, conn: conn, chart: charts.Principal, namespace: conn.Namespace}
			if err := s.connect(); err != nil {
				return err
			}
			base := map[string]any{}
			if o.registry != "" {
				base["image"] = o.image("principal")
				base["envoy"] = map[string]any{"bootstrapImage": o.image("agentctl")}
			}
			values, err := o.merged(base)
			if err != nil {
				return err
			}
			if err := s.hasImages(values); err != nil {
				return err
			}
			if err := s.install(cmd.Context(), o, values); err != nil || o.dryRun.Value != cli.DryRunNone {
				return err
			}
			return s.say("next: agentctl agent create NAME --mode managed --trust-domain TRUST_DOMAIN -n %s", s.namespace)
		},
	}
	o.addFlags(cmd)
	return cmd
}

type spokeCommand struct {
	std         cli.Streams
	conn        *cli.Connection
	options     options
	hubContext  string
	hub         string // namespace of the hub's Argo CD
	principal   string
	principalID string
}

// NewSpokeCommand returns `agentctl spoke`.
func NewSpokeCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "spoke",
		Short: "Install the agent on a spoke, and remove it",
		Args:  cli.NoCommand,
		RunE:  cli.ShowHelp,
	}
	cmd.AddCommand(newSpokeInstallCommand(std, conn), newUninstallCommand(std, conn, charts.Agent, "agent"))
	return cmd
}

func newSpokeInstallCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &spokeCommand{std: std, conn: conn}
	cmd := &cobra.Command{
		Use:   "install NAME",
		Short: "Install the agent beside a spoke's Argo CD, or upgrade it",
		Long: "Install the chart argomesh-agent, which is in agentctl, into the namespace of the spoke's\n" +
			"Argo CD, or upgrade it, and wait until the agent is ready. --context is the spoke. With --hub-context\n" +
			"name, mode, namespaces and live access are those of the Agent on the hub, and the command waits until\n" +
			"the hub shows the agent connected; without, they are in --values.\n\n" + kept,
		Example: "  agentctl spoke install edge-1 --context edge-1 --hub-context hub --registry registry.example/argomesh \\\n" +
			"    --principal argomesh.hub.example:443 --principal-id spiffe://hub.example/argomesh/principal",
		Args: cli.Names(true),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	c.options.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&c.hubContext, "hub-context", "", "context of the kubeconfig for the hub")
	flags.StringVar(&c.hub, "hub-namespace", cli.DefaultNamespace, "namespace of the hub's Argo CD, where the Agents live")
	agents.AddPrincipalFlags(cmd, &c.principal, &c.principalID)
	cli.Register(cmd, "hub-context", conn.CompleteContexts)
	cli.Register(cmd, "hub-namespace", cobra.NoFileCompletions)
	return cmd
}

func (c *spokeCommand) run(ctx context.Context, name string) error {
	s := &side{std: c.std, conn: c.conn, chart: charts.Agent, namespace: c.conn.Namespace}
	if err := s.connect(); err != nil {
		return err
	}
	base, hub, err := c.ofHub(ctx, name)
	if err != nil {
		return err
	}
	if c.options.registry != "" {
		base["image"] = c.options.image("agent")
	}
	values, err := c.options.merged(base)
	if err != nil {
		return err
	}
	if err := s.hasImages(values); err != nil {
		return err
	}
	is, err := s.releases.Observe(s.chart)
	if err != nil {
		return s.explain(err, "look for "+s.chart)
	}
	all := loader.MergeMaps(is.Values, values)
	if !has(all, "config", "principal", "address") || !has(all, "config", "principal", "spiffe_ids") {
		return errors.New("--principal and --principal-id are missing: where the spoke reaches the principal, and the SPIFFE ID" +
			" that it has there")
	}
	if err := s.install(ctx, &c.options, values); err != nil || c.options.dryRun.Value != cli.DryRunNone {
		return err
	}
	if hub == nil {
		return s.say("next, on the hub: agentctl agent get %s", name)
	}
	if !c.options.noWait {
		if err := agents.WaitConnected(ctx, hub, name, c.options.timeout); err != nil {
			return err
		}
		if err := s.say("agent %s is connected to the hub", name); err != nil {
			return err
		}
	}
	return s.say("next: agentctl agent get %s --context %s -n %s", name, c.hubContext, c.hub)
}

// has reports whether values say something at a path.
func has(values map[string]any, path ...string) bool {
	for _, key := range path[:len(path)-1] {
		values, _ = values[key].(map[string]any)
	}
	return values[path[len(path)-1]] != nil
}

// hasImages refuses an installation whose image is in no registry: ours has none that is public.
func (s *side) hasImages(values map[string]any) error {
	is, err := s.releases.Observe(s.chart)
	if err != nil {
		return s.explain(err, "look for "+s.chart)
	}
	if !has(loader.MergeMaps(is.Values, values), "image", "repository") {
		return errors.New("--registry is missing: where the images are that \"make images\" made, such as" +
			" registry.example/argomesh")
	}
	return nil
}

// ofHub returns the values that follow from the Agent on the hub, and the hub; without
// --hub-context the name alone, and nil.
func (c *spokeCommand) ofHub(ctx context.Context, name string) (map[string]any, *cli.Hub, error) {
	base := map[string]any{"config": map[string]any{"name": name}}
	if c.hubContext == "" {
		return base, nil, nil
	}
	hub, err := c.conn.In(c.hubContext).HubIn(c.hub)
	if err != nil {
		return nil, nil, err
	}
	agent, _, err := hub.Agent(ctx, name, fmt.Sprintf("install agent %q", name))
	if err != nil {
		return nil, nil, err
	}
	if err := agents.CheckPrincipal(c.principal, c.principalID); err != nil {
		return nil, nil, err
	}
	values := agents.SpokeValues(agent, c.principal, c.principalID)
	if c.principal == "" || c.principalID == "" { // what was given once is kept
		of, _ := values["config"].(map[string]any)["principal"].(map[string]any)
		if c.principal == "" {
			delete(of, "address")
		}
		if c.principalID == "" {
			delete(of, "spiffe_ids")
		}
	}
	return loader.MergeMaps(base, values), hub, nil
}

// NewHubUninstallCommand returns `agentctl hub uninstall`.
func NewHubUninstallCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	return newUninstallCommand(std, conn, charts.Principal, "principal")
}

func newUninstallCommand(std cli.Streams, conn *cli.Connection, chart, what string) *cobra.Command {
	var yes bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the " + what + ", and say what stays",
		Long: "Remove what the chart " + chart + " installed. Applications and their workloads stay as they\n" +
			"are, on hub and spokes, and so do Agents and their definition.",
		Args: cli.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := &side{std: std, conn: conn, chart: chart, namespace: conn.Namespace}
			if err := s.connect(); err != nil {
				return err
			}
			return s.uninstall(cmd.Context(), yes, timeout)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait until it is gone")
	cli.Register(cmd, "timeout", cobra.NoFileCompletions)
	return cmd
}

// uninstall removes the release, if a person agrees.
func (s *side) uninstall(ctx context.Context, yes bool, timeout time.Duration) error {
	is, err := s.releases.Observe(s.chart)
	if err != nil {
		return s.explain(err, "look for "+s.chart)
	}
	if is.Revision == 0 {
		return s.say("%s is not installed in namespace %s", s.chart, s.namespace)
	}
	objects, err := byName(is.Manifest)
	if err != nil {
		return err
	}
	question := fmt.Sprintf("%s %s and its %d objects will be removed from namespace %s; Applications and workloads stay. Go on?",
		is.Chart, is.Version, len(objects), s.namespace)
	agreed, err := cli.Consent(s.std, yes, question)
	if err != nil {
		return fmt.Errorf("uninstall %s: %w", s.chart, err)
	}
	if !agreed {
		return s.say("nothing was removed")
	}
	err = s.alone(ctx, func(context.Context) error {
		done, err := s.releases.Remove(s.chart, timeout)
		if err != nil {
			return s.explain(err, "uninstall "+s.chart)
		}
		if done.Kept != "" {
			if err := s.say("%s", done.Kept); err != nil {
				return err
			}
		}
		return s.say("%s is removed from namespace %s", s.chart, s.namespace)
	})
	if err != nil {
		return err
	}
	err = s.client.CoordinationV1().Leases(s.namespace).Delete(ctx, leaseName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return s.explain(err, "remove Lease "+leaseName)
	}
	return nil
}
