package install

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/agents"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/argocd"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/chartvalues"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/gitops"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/istiosetup"
	meshcommand "github.com/argomesh/argomesh/cmd/agentctl/internal/mesh"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/release"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/rights"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh/spire"
)

type spokeCommand struct {
	std         cli.Streams
	conn        *cli.Connection
	options     options
	hubContext  string
	hub         string // namespace of the hub's Argo CD
	principal   string
	principalID string
	peer        string   // SPIFFE ID that the agent is to meet, once it is planned
	ids         []string // SPIFFE IDs of the agent, as far as they are known
	agent       agents.Registration
	registers   bool // the Agent is not on the hub yet
	federate    federateFlags
	from        string // file that the hub's side wrote
	quiet       bool   // what to do next is not said
	flags       *pflag.FlagSet
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
			"they are in --values. The address of the principal is the --address of \"agentctl hub install\", or\n" +
			"that of its load balancer, and its SPIFFE ID that which was registered there, unless --principal and\n" +
			"--principal-id say otherwise.\n\n" +
			"Before anything is written it looks for what must be there, as \"agentctl check spoke --pre\" does. A pod\n" +
			"like those of the agent tries the way to the principal, where the agent does not know that one yet; not\n" +
			"with --no-wait.\n\n" +
			"Who has no access to the hub gets a file from there, \"agentctl agent create NAME -o install\", and gives\n" +
			"it by --from. The file says who the agent and its principal are, so flags that do are refused beside\n" +
			"it. Of a hub with another trust domain it says what has to be done so that the two SPIREs trust each\n" +
			"other.\n\n" +
			"Where AppProject default is not shared by hub and spoke, it prints an AppProject by which Applications\n" +
			"of the hub go to the spoke, and --project makes it.\n\n" +
			"The pods are registered with the spoke's SPIRE as what the Agent names. The Redis of the spoke's Argo\n" +
			"CD is filled in, so that the hub's Argo CD shows the trees.\n\n" + bare + kept,
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
	c.flags = flags
	flags.StringVar(&c.options.repository, "repo-url", "",
		"repository in which --output-dir will be: writes an ApplicationSet that keeps the agents as the files say")
	flags.StringVar(&c.options.repositoryPath, "repo-path", "", "where in that repository the folder will be")
	cli.Register(cmd, "repo-url", cobra.NoFileCompletions)
	cli.Register(cmd, "repo-path", cobra.NoFileCompletions)
	flags.StringVar(&c.from, "from", "", "file of \"agentctl agent create NAME -o install\"; - for standard input")
	flags.StringVar(&c.hubContext, "hub-context", "", "context of the kubeconfig for the hub")
	flags.StringVar(&c.hub, "hub-namespace", cli.DefaultNamespace, "namespace of the hub's Argo CD, where the Agents live")
	flags.StringVar(&c.options.project, "project", "",
		"AppProject to make on the hub for Applications on this spoke, if it is not there: where default is not shared")
	cli.Register(cmd, "project", cobra.NoFileCompletions)
	chartvalues.AddPrincipalFlags(cmd, &c.principal, &c.principalID)
	c.agent.AddFlags(cmd)
	c.federate.addFlags(cmd)
	cli.Register(cmd, "hub-context", conn.CompleteContexts)
	cli.Register(cmd, "hub-namespace", cobra.NoFileCompletions)
	return cmd
}

func (c *spokeCommand) run(ctx context.Context, name string) error {
	o := &c.options
	if err := c.check(); err != nil {
		return err
	}
	s := &side{std: c.std, conn: c.conn, chart: charts.Agent, namespace: c.conn.Namespace}
	if err := s.connect(); err != nil {
		return err
	}
	given, err := c.over(map[string]any{"config": map[string]any{"name": name}})
	if err != nil {
		return err
	}
	if err := c.hasRights(ctx, s, given); err != nil {
		return err
	}
	hub, agent, err := c.ofHub(ctx, s, name)
	if err != nil {
		return err
	}
	apps, err := planProject(ctx, o, hub, agent)
	if err != nil {
		return err
	}
	var mode string
	if agent != nil {
		c.ids, mode = agent.Spec.Identity.SPIFFEIDs, string(agent.Spec.Mode)
	}
	if missing, err := c.bring(ctx, s, name, mode, c.baseOf(name, agent)); err != nil || missing {
		return err
	}
	if err := s.check(ctx, o, given); err != nil {
		return err
	}
	w, err := c.plan(ctx, s, name, agent)
	if err != nil {
		return err
	}
	if w.told, err = projectFor(ctx, s, o, hub, name, w.values); err != nil {
		return err
	}
	w.project = apps
	if o.outputDir != "" {
		return s.writeSpoke(ctx, o, w, name, agent)
	}
	if hub != nil {
		if w.first, w.will, err = c.planHub(ctx, s, hub, agent, apps); err != nil {
			return err
		}
	}
	if err := s.install(ctx, o, w); err != nil || o.dryRun.Value != cli.DryRunNone {
		return err
	}
	if hub == nil {
		return s.say("next, on the hub: agentctl agent get %s", name)
	}
	return c.finish(ctx, s, hub, name)
}

// check refuses flags that do not go together, or have no meaning.
func (c *spokeCommand) check() error {
	if err := c.options.checkOutput(); err != nil {
		return err
	}
	if c.hubContext == "" && c.agent.Given() {
		return errors.New("--hub-context is missing: what the Agent is, is said on the hub")
	}
	if c.hubContext == "" && c.options.project != "" {
		return errors.New("--project: --hub-context is missing: the AppProject is made on the hub")
	}
	if err := chartvalues.CheckPrincipal(c.principal, c.principalID); err != nil {
		return err
	}
	return c.federate.check()
}

// bring brings what --with names, for an agent of that name and mode, with the values that base has.
func (c *spokeCommand) bring(ctx context.Context, s *side, name, mode string,
	base map[string]any) (missing bool, err error) {
	if len(c.options.with.names) == 0 {
		return false, nil
	}
	values, err := c.given(s, base)
	if err != nil {
		return false, err
	}
	known, err := s.known(values)
	if err != nil {
		return false, err
	}
	if err := hasPrincipal(known); err != nil {
		return false, err
	}
	role := argocd.ManagedSpoke
	if mode == string(v1alpha1.ModeAutonomous) {
		role = argocd.AutonomousSpoke
	}
	trustDomain := ""
	if len(c.ids) > 0 {
		id, err := identity.ParseID(c.ids[0])
		if err != nil {
			return false, err
		}
		trustDomain = id.TrustDomain().Name()
	}
	hub, err := identity.ParseID(c.principalID)
	if err == nil && hub.TrustDomain().Name() == trustDomain && c.options.with.has(withSPIRE) {
		return false, fmt.Errorf("--with spire: trust domain %s is that of the hub's SPIRE, and each SPIRE signs for one of its own:"+
			" give the spoke another by --trust-domain, such as edge.%s", trustDomain, trustDomain)
	}
	return bring(ctx, s, &c.options, role, trustDomain, gitops.SpokesFolder+"/"+name, values)
}

// plan returns what is to be on the spoke, where the Agent on the hub is nil if the hub is not
// known.
func (c *spokeCommand) plan(ctx context.Context, s *side, name string, agent *v1alpha1.Agent) (w wanted, err error) {
	if w, err = c.planned(ctx, s, c.baseOf(name, agent)); err != nil {
		return w, err
	}
	if agent == nil || !c.options.identity.register || !c.agent.HasIdentity() {
		return w, nil
	}
	r, err := agentRegistration(name, agent.Spec.Identity.SPIFFEIDs, c.peer)
	if err != nil {
		return w, err
	}
	w.identity, err = s.planIdentity(ctx, &c.options.identity, r)
	return w, err
}

// planIstio plans the objects of a spoke's Istio: where it is asked for, and where they are already.
func (c *spokeCommand) planIstio(ctx context.Context, s *side,
	known map[string]any) (out []meshcommand.State, err error) {
	if !istiosetup.Uses(known) {
		return nil, nil
	}
	if !c.options.with.has(withIstio) {
		left, err := meshcommand.LeftOnSpoke(ctx, s.conn, s.namespace)
		if err != nil || !left.Any() {
			return nil, err
		}
	}
	config, _ := known["config"].(map[string]any)
	principal, _ := config["principal"].(map[string]any)
	hub, err := istiosetup.HubAddress(text(principal, "address"))
	if err != nil {
		return nil, fmt.Errorf("--with istio: --principal: %w", err)
	}
	peer, err := identity.ParseID(peerOf(known))
	if err != nil {
		return nil, fmt.Errorf("--principal-id: %w", err)
	}
	state, err := meshcommand.ObserveSpoke(ctx, s.conn, s.namespace, peer, hub)
	if err != nil {
		return nil, err
	}
	return []meshcommand.State{state}, state.Try(ctx)
}

// planned returns what is to be installed, with the values that base has.
func (c *spokeCommand) planned(ctx context.Context, s *side, base map[string]any) (w wanted, err error) {
	if w.values, err = c.given(s, base); err != nil {
		return w, err
	}
	if w.values, err = shareOnSpoke(ctx, s, &c.options, w.values); err != nil {
		return w, err
	}
	if c.options.argoCD {
		if w.values, _, err = s.fillIn(ctx, w.values, argocd.State.SpokeValues); err != nil {
			return w, err
		}
	}
	if c.options.with.has(withIstio) {
		if w.values, err = c.options.with.istio.onSpoke(ctx, s, c.ids, w.values); err != nil {
			return w, err
		}
	}
	known, err := s.known(w.values)
	if err != nil {
		return w, err
	}
	c.peer = peerOf(known)
	if err := hasPrincipal(known); err != nil {
		return w, err
	}
	w.try = func(ctx context.Context, p release.Plan) error { return c.reachable(ctx, s, p) }
	w.mesh, err = c.planIstio(ctx, s, known)
	return w, err
}

// hasRights refuses a first install of an agent by a user who lacks rights on the spoke or on the hub. The values are
// as far as they are known: who is the principal makes no difference for rights.
func (c *spokeCommand) hasRights(ctx context.Context, s *side, values map[string]any) error {
	if !needsRights(s, &c.options) {
		return nil
	}
	principal := map[string]any{
		"address": "principal.invalid:443", "spiffe_ids": []any{"spiffe://principal.invalid/principal"},
	}
	values = loader.MergeMaps(map[string]any{"config": map[string]any{"principal": principal}}, values)
	var needs []rights.Right
	register := c.options.identity.register && (c.agent.HasIdentity() || c.from != "")
	if register {
		needs = rights.OfSPIRE(spire.ClusterSPIFFEIDKind)
	}
	more, err := c.lackingOnHub(ctx, register && c.federate.federate)
	if err != nil {
		return err
	}
	return refuseWithoutRights(ctx, s, &c.options, needs, values, more...)
}
