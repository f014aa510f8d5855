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

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/agents"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/argocd"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/chartvalues"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

const kept = "Values that were given once are kept: --values and --set are laid over them. A release that helm made\n" +
	"is taken over, and helm goes on working with it. Where nothing has to change nothing is written."

type hubCommand struct {
	std         cli.Streams
	conn        *cli.Connection
	options     options
	trustDomain string
}

// NewHubCommand returns `agentctl hub install`.
func NewHubCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &hubCommand{std: std, conn: conn}
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install the principal beside the hub's Argo CD, or upgrade it",
		Long: "Install the chart argomesh-principal, which is in agentctl, into the namespace of the hub's\n" +
			"Argo CD, or upgrade it, and wait until the principal is ready. Before anything is written it\n" +
			"looks for what must be there, and asks the Kubernetes API whether it would refuse an object.\n\n" +
			"With --trust-domain the principal is registered with SPIRE. The Redis of Argo CD is filled in, and\n" +
			"argocd-server is told of the Redis proxy, by which Argo CD shows the trees of spokes: one argument of\n" +
			"its Deployment, which \"agentctl hub uninstall\" takes away. An argocd-server that another tool manages\n" +
			"is not changed; what to set there is said.\n\n" + kept,
		Example: "  agentctl hub install --context hub --registry registry.example/argomesh --trust-domain hub.example",
		Args:    cli.None,
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	c.options.addFlags(cmd)
	cmd.Flags().StringVar(&c.trustDomain, "trust-domain", "",
		"trust domain of the hub: the principal is registered with SPIRE as spiffe://<trust domain>/argomesh/principal")
	cli.Register(cmd, "trust-domain", cobra.NoFileCompletions)
	return cmd
}

func (c *hubCommand) run(ctx context.Context) error {
	o := &c.options
	if err := o.checkOutput(); err != nil {
		return err
	}
	s := &side{std: c.std, conn: c.conn, chart: charts.Principal, namespace: c.conn.Namespace}
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
	if err := s.check(ctx); err != nil {
		return err
	}
	w, err := c.plan(ctx, s, values)
	if err != nil {
		return err
	}
	if o.outputDir != "" {
		return s.writeHub(ctx, o, w)
	}
	if err := s.install(ctx, o, w); err != nil || o.dryRun.Value != cli.DryRunNone {
		return err
	}
	return s.say("next: agentctl spoke install NAME --context SPOKE --hub-context HUB --trust-domain TRUST_DOMAIN")
}

// plan returns what is to be on the hub.
func (c *hubCommand) plan(ctx context.Context, s *side, values map[string]any) (w wanted, err error) {
	w.values = values
	if c.options.argoCD {
		var argo argocd.State
		if w.values, argo, err = s.fillIn(ctx, values, argocd.State.HubValues); err != nil {
			return w, err
		}
		known, err := s.known(w.values)
		if err != nil {
			return w, err
		}
		if w.server, err = s.planServer(ctx, argo, known); err != nil {
			return w, err
		}
	}
	if c.trustDomain == "" || !c.options.identity.register {
		return w, nil
	}
	r, err := principalRegistration(c.trustDomain, s.namespace)
	if err != nil {
		return w, err
	}
	w.identity, err = s.planIdentity(ctx, &c.options.identity, r)
	return w, err
}

type spokeCommand struct {
	std         cli.Streams
	conn        *cli.Connection
	options     options
	hubContext  string
	hub         string // namespace of the hub's Argo CD
	principal   string
	principalID string
	agent       agents.Registration
	from        string // file that the hub's side wrote
	quiet       bool   // what to do next is not said
}

func newSpokeInstallCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &spokeCommand{std: std, conn: conn}
	cmd := &cobra.Command{
		Use:   "install (NAME | --from FILE)",
		Short: "Install the agent beside a spoke's Argo CD, or upgrade it",
		Long: "Install the chart argomesh-agent, which is in agentctl, into the namespace of the spoke's\n" +
			"Argo CD, or upgrade it, and wait until the agent is ready. --context is the spoke. With --hub-context\n" +
			"name, mode, namespaces and live access are those of the Agent on the hub, which is registered if it is\n" +
			"not there (--trust-domain), and the command waits until the hub shows the agent connected; without,\n" +
			"they are in --values. The address of the principal is that of its load balancer, and its SPIFFE ID that\n" +
			"which \"agentctl hub install\" registered, unless --principal and --principal-id say otherwise.\n\n" +
			"Who has no access to the hub gets a file from there, \"agentctl agent create NAME -o install\", and gives\n" +
			"it by --from.\n\n" +
			"The pods are registered with the spoke's SPIRE as what the Agent names. The Redis of the spoke's Argo\n" +
			"CD is filled in, so that the hub's Argo CD shows the trees.\n\n" + kept,
		Example: "  agentctl spoke install edge-1 --context edge-1 --hub-context hub --registry registry.example/argomesh \\\n" +
			"    --trust-domain edge.example --principal argomesh.hub.example:443",
		Args: func(cmd *cobra.Command, args []string) error {
			if c.from != "" {
				return cli.None(cmd, args) // the file has the name
			}
			return cli.Names(true)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.from != "" {
				return c.runFrom(cmd.Context())
			}
			return c.run(cmd.Context(), args[0])
		},
	}
	c.options.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&c.options.repository, "repo-url", "",
		"repository in which --output-dir will be: writes an ApplicationSet that keeps the agents as the files say")
	flags.StringVar(&c.options.repositoryPath, "repo-path", "", "where in that repository the folder will be")
	cli.Register(cmd, "repo-url", cobra.NoFileCompletions)
	cli.Register(cmd, "repo-path", cobra.NoFileCompletions)
	flags.StringVar(&c.from, "from", "", "file of \"agentctl agent create NAME -o install\"; - for standard input")
	flags.StringVar(&c.hubContext, "hub-context", "", "context of the kubeconfig for the hub")
	flags.StringVar(&c.hub, "hub-namespace", cli.DefaultNamespace, "namespace of the hub's Argo CD, where the Agents live")
	chartvalues.AddPrincipalFlags(cmd, &c.principal, &c.principalID)
	c.agent.AddFlags(cmd)
	cli.Register(cmd, "hub-context", conn.CompleteContexts)
	cli.Register(cmd, "hub-namespace", cobra.NoFileCompletions)
	return cmd
}

func (c *spokeCommand) run(ctx context.Context, name string) error {
	o := &c.options
	if err := o.checkOutput(); err != nil {
		return err
	}
	s := &side{std: c.std, conn: c.conn, chart: charts.Agent, namespace: c.conn.Namespace}
	if err := s.connect(); err != nil {
		return err
	}
	if c.hubContext == "" && c.agent.Given() {
		return errors.New("--hub-context is missing: what the Agent is, is said on the hub")
	}
	if err := chartvalues.CheckPrincipal(c.principal, c.principalID); err != nil {
		return err
	}
	if err := s.check(ctx); err != nil {
		return err
	}
	hub, agent, err := c.ofHub(ctx, name)
	if err != nil {
		return err
	}
	w, err := c.plan(ctx, s, name, agent)
	if err != nil {
		return err
	}
	if o.outputDir != "" {
		return s.writeSpoke(ctx, o, w, name, agent)
	}
	if hub != nil {
		w.first = func(ctx context.Context) error { return c.register(ctx, s, hub, name) }
	}
	if err := s.install(ctx, o, w); err != nil || o.dryRun.Value != cli.DryRunNone {
		return err
	}
	if hub == nil {
		return s.say("next, on the hub: agentctl agent get %s", name)
	}
	if c.quiet {
		return nil
	}
	if !o.noWait {
		if err := agents.WaitConnected(ctx, hub, name, o.timeout); err != nil {
			return err
		}
		if err := s.say("agent %s is connected to the hub", name); err != nil {
			return err
		}
	}
	return s.say("next: agentctl agent get %s --context %s -n %s", name, c.hubContext, c.hub)
}

// runFrom installs by a file that the hub's side wrote.
func (c *spokeCommand) runFrom(ctx context.Context) error {
	if err := c.options.checkOutput(); err != nil {
		return err
	}
	if c.hubContext != "" || c.agent.Given() {
		return errors.New("--from: the file says what the Agent is; leave out --hub-context and what is said on the hub")
	}
	file, err := chartvalues.ReadFile(c.from, c.std.In)
	if err != nil {
		return err
	}
	s := &side{std: c.std, conn: c.conn, chart: charts.Agent, namespace: c.conn.Namespace}
	if err := s.connect(); err != nil {
		return err
	}
	if err := s.check(ctx); err != nil {
		return err
	}
	w, err := c.planned(ctx, s, file.Values)
	if err != nil {
		return err
	}
	if c.options.identity.register {
		r, err := agentRegistration(file.Name, file.SPIFFEIDs, file.PrincipalID)
		if err != nil {
			return err
		}
		if w.identity, err = s.planIdentity(ctx, &c.options.identity, r); err != nil {
			return err
		}
	}
	if c.options.outputDir != "" {
		return s.writeSpoke(ctx, &c.options, w, file.Name, nil)
	}
	if err := s.install(ctx, &c.options, w); err != nil || c.options.dryRun.Value != cli.DryRunNone {
		return err
	}
	return s.say("next, on the hub: agentctl agent get %s", file.Name)
}

// plan returns what is to be on the spoke, where the Agent on the hub is nil if the hub is not
// known.
func (c *spokeCommand) plan(ctx context.Context, s *side, name string, agent *v1alpha1.Agent) (w wanted, err error) {
	base := map[string]any{"config": map[string]any{"name": name}}
	if agent != nil {
		base = loader.MergeMaps(base, c.valuesOf(agent))
	}
	if w, err = c.planned(ctx, s, base); err != nil {
		return w, err
	}
	if agent == nil || !c.options.identity.register || !c.agent.HasIdentity() {
		return w, nil
	}
	r, err := agentRegistration(name, agent.Spec.Identity.SPIFFEIDs, c.principalID)
	if err != nil {
		return w, err
	}
	w.identity, err = s.planIdentity(ctx, &c.options.identity, r)
	return w, err
}

// planned returns what is to be installed, with the values that base has.
func (c *spokeCommand) planned(ctx context.Context, s *side, base map[string]any) (w wanted, err error) {
	if c.options.registry != "" {
		base["image"] = c.options.image("agent")
	}
	if w.values, err = c.options.merged(base); err != nil {
		return w, err
	}
	if err := s.hasImages(w.values); err != nil {
		return w, err
	}
	if c.options.argoCD {
		if w.values, _, err = s.fillIn(ctx, w.values, argocd.State.SpokeValues); err != nil {
			return w, err
		}
	}
	known, err := s.known(w.values)
	if err != nil {
		return w, err
	}
	if !has(known, "config", "principal", "address") || !has(known, "config", "principal", "spiffe_ids") {
		return w, errors.New("--principal and --principal-id are missing: where the spoke reaches the principal, and the SPIFFE ID" +
			" that it has there")
	}
	return w, nil
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

// ofHub returns the hub, and the Agent there, or as it will be once it is registered; nil without
// --hub-context. What the flags do not say of the principal is filled in.
func (c *spokeCommand) ofHub(ctx context.Context, name string) (*cli.Hub, *v1alpha1.Agent, error) {
	if c.hubContext == "" {
		return nil, nil, nil
	}
	conn := c.conn.In(c.hubContext)
	hub, err := conn.HubIn(c.hub)
	if err != nil {
		return nil, nil, err
	}
	agent, _, err := c.agent.Ensure(ctx, hub, name, true) // the API server tries it, and stores nothing yet
	if err != nil {
		return nil, nil, err
	}
	chartvalues.FindPrincipal(ctx, conn, c.hub, &c.principal, &c.principalID)
	return hub, agent, nil
}

// register registers the agent with the hub, if it is not.
func (c *spokeCommand) register(ctx context.Context, s *side, hub *cli.Hub, name string) error {
	dryRun := c.options.dryRun.Value != cli.DryRunNone
	_, created, err := c.agent.Ensure(ctx, hub, name, dryRun)
	switch {
	case err != nil || !created:
		return err
	case dryRun:
		return s.say("agent %s is registered with the hub (server dry run)", name)
	}
	return s.say("agent %s is registered with the hub", name)
}

// valuesOf returns the values that follow from the Agent on the hub.
func (c *spokeCommand) valuesOf(agent *v1alpha1.Agent) map[string]any {
	values := chartvalues.OfAgent(agent, c.principal, c.principalID)
	of, _ := values["config"].(map[string]any)["principal"].(map[string]any)
	if c.principal == "" { // what was given once is kept
		delete(of, "address")
	}
	if c.principalID == "" {
		delete(of, "spiffe_ids")
	}
	return values
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
			"are, on hub and spokes, and so do Agents, their definition, and what is registered with SPIRE\n" +
			"(\"agentctl identity revoke\"). On the hub argocd-server gets the Redis back that it had.",
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
	question := fmt.Sprintf("%s %s and its %d objects will be removed from namespace %s; Applications and workloads, Agents, and"+
		" what is registered with SPIRE stay. Go on?",
		is.Chart, is.Version, len(objects), s.namespace)
	agreed, err := cli.Consent(s.std, yes, question)
	if err != nil {
		return fmt.Errorf("uninstall %s: %w", s.chart, err)
	}
	if !agreed {
		return s.say("nothing was removed")
	}
	err = s.alone(ctx, func(ctx context.Context) error {
		if s.chart == charts.Principal {
			if err := s.restoreServer(ctx, is.Values, timeout); err != nil {
				return err
			}
		}
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
